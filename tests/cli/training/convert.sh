# Pickles of PyTorch become safetensors if the user asks for it.
pickles=$data/pickles
hasten convert "$pickles/zoo.bin" zoo.safetensors
ls
hasten convert "$pickles/zoo.bin" zoo.safetensors --allow_pickle
cmp "$pickles/zoo.safetensors" zoo.safetensors
hasten convert --allow_pickle "$pickles/sharded" whole
ls whole
hasten convert "$pickles/accelerate/optimizer.bin" x.safetensors --allow_pickle
hasten convert "$pickles/old.bin" x.safetensors --allow_pickle
printf 'cos\nsystem\n(X\007\0\0\0touch mtR.' >attack.pkl
python3 - <<'END'
import zipfile
with zipfile.ZipFile("attack.bin", "w") as file:
    file.writestr("a/data.pkl", b"\x80\x02" + open("attack.pkl", "rb").read())
END
hasten convert attack.bin x.safetensors --allow_pickle
ls
hasten convert missing x.safetensors
hasten convert
hasten convert --help | head -1
