# Runs hasten test with real processes and kills some of them. The output omits everything that differs between machines.
hasten test -n 2 --num_cpu_threads_per_process 1 2>&1 |
  sed -E "s/ +[0-9]+\.[0-9]{2} s$/  T s/; s/[0-9]+ ms/T ms/; s/: [0-9]+ µs.*GB\/s/: BANDWIDTH/; s/127.0.0.1:[0-9]+/127.0.0.1:PORT/; s/on $(hostname)$/on HOST/;
    s/on $(hostname)  /on HOST  /; s/hasten [0-9.]+, LibTorch [^,]+/hasten N, LibTorch N/; s/, [0-9]+ cores?(: more threads than cores)?/, N cores/;
    s/(devices: ).*  T/\1DEVICES  T/"
# With one process, the checks that need two are skipped.
hasten test -n 1 --timeout 50 2>&1 | sed -E 's/ +[0-9]+\.[0-9]{2} s$//' | grep -E '^skip|^hasten|^All'
# If the port is in use, the ranks do not start and the other checks run.
python3 -c 'import socket, time; held = socket.socket(); held.bind(("127.0.0.1", 0)); held.listen()
print(held.getsockname()[1], flush=True); time.sleep(60)' >port &
holder=$!
until [ -s port ]; do sleep 0.02; done
hasten test -n 2 --main_process_port "$(cat port)" 2>&1 | sed -E "s/$(cat port)/PORT/; s/ +[0-9]+\.[0-9]{2} s$//" | grep -vE '^ok'
kill $holder
# Users cannot start a rank directly.
"$folder/bin/hasten-torch" test-rank 5 || echo "exit code $?"
