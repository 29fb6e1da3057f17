#!/usr/bin/env python3
"""Tests save_on_each_node: two launchers on this machine act as two machines. Each has two ranks and its own folder; they save, resume and agree.
All processes of one of them are killed at once, as by a power failure, and the job continues when that machine is back.

    each_machine.py HASTEN MODEL
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
from checks import check, exit_code
from clean import CLEAN
from processes import marked, until
from rows import write_ids

HASTEN, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
FOLDER = pathlib.Path(tempfile.mkdtemp())
ENVIRONMENT = CLEAN | {"OMP_NUM_THREADS": "1", "HASTEN_JOB_TOKEN": "0123456789abcdef0123456789abcdef"}
TRAIN = ["train", "--use_cpu", "--disable_tqdm", "--per_device_train_batch_size", 2, "--save_steps", 3, "--save_on_each_node", "true"]


def machine(rank, port, data, folder, *arguments, steps=12, launch=()):
    command = [HASTEN, "launch", "--num_machines", 2, "--machine_rank", rank, "--nproc_per_node", 2, "--main_process_ip", "127.0.0.1",
               "--main_process_port", port, "--no_config_file", *launch, HASTEN, *TRAIN, "--max_steps", steps, "--model", MODEL, "--data", data,
               "--output_dir", folder, *arguments]
    return subprocess.Popen([str(each) for each in command], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def results(machines):
    """Returns the exit codes and the output of both machines."""
    texts = [each.communicate(timeout=120)[0] for each in machines]
    return [each.returncode for each in machines], texts


def job(data, folders, *arguments, **more):
    port = random.randrange(30000, 32000)
    return results([machine(rank, port, data, folder, *arguments, **more) for rank, folder in enumerate(folders)])


def names(folder):
    return sorted(path.name for path in folder.glob("*checkpoint*"))


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def kill_all(folder):
    """Kills the launcher, its cleanup process and its ranks, which all have the folder in their command lines."""
    while found := marked(str(folder)):
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass


def killed_machines(data):
    """A machine loses all its processes at once. The job continues with the undisturbed bits when the machine is back. Machine 1 is waited for;
    without machine 0 the job ends, and is started again on both machines."""
    steps = 90
    straight = [FOLDER / "straight0", FOLDER / "straight1"]
    codes, texts = job(data, straight, steps=steps)
    check(codes == [0, 0], f"an undisturbed job of {steps} steps ends with {codes}", *texts)
    for victim in (1, 0):
        what = f"all processes of machine {victim} are killed"
        folders = [FOLDER / f"killed{victim}.{rank}" for rank in range(2)]
        arguments = {"steps": steps, "launch": ["--max_restarts", 3, "--resume"]}
        port = random.randrange(30000, 32000)
        machines = [machine(rank, port, data, folder, **arguments) for rank, folder in enumerate(folders)]
        saved = until(lambda: (folders[victim] / "checkpoint-12").exists() or machines[victim].poll() is not None, 60)
        was_running = machines[victim].poll() is None
        kill_all(folders[victim])
        before = machines[victim].communicate(timeout=60)[0]
        check(saved and was_running, f"{what} in the middle of the job", before)
        if victim == 0:
            text = machines[1].communicate(timeout=60)[0]
            check(machines[1].returncode == 1 and "is lost" in text, f"{what}: the other launcher ends with {machines[1].returncode}", text)
            machines[1] = machine(1, port, data, folders[1], **arguments)
        machines[victim] = machine(victim, port, data, folders[victim], **arguments)
        codes, texts = results(machines)
        check(codes == [0, 0] and "resuming from" in "".join(texts), f"{what}: the job continues with it, and ends with {codes}", before, *texts)
        check(all((folder / "model.safetensors").exists() and weights(folder) == weights(straight[0]) for folder in folders),
              f"{what}: the weights are those of the undisturbed job on both machines")


def main():
    data = FOLDER / "rows.safetensors"
    write_ids(data, 48, 7)
    whole = [FOLDER / "whole0", FOLDER / "whole1"]
    codes, texts = job(data, whole)
    check(codes == [0, 0], f"two machines with folders of their own end with {codes}", *texts)
    if codes != [0, 0]:
        return
    expected = ["checkpoint-12", "checkpoint-3", "checkpoint-6", "checkpoint-9"]
    check(all(names(folder) == expected for folder in whole), "each machine has every checkpoint")
    check(weights(whole[0]) == weights(whole[1]), "both machines have the same model")

    def resumed(what, prepare, step):
        """Resumes copies of the folders after `prepare` has changed one of them. The job must continue from the newest step that both have."""
        folders = [FOLDER / f"again{rank}" for rank in range(2)]
        for folder, original in zip(folders, whole):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(original, folder)
            shutil.rmtree(folder / "checkpoint-12")
            (folder / "model.safetensors").unlink()
        prepare(folders)
        codes, texts = job(data, folders, "--resume_from_checkpoint", "true")
        check(codes == [0, 0] and f"checkpoint-{step} at step {step}" in "".join(texts), f"{what}: the job continues from step {step}", *texts)
        same = [(folder / "model.safetensors").exists() and weights(folder) == weights(whole[0]) for folder in folders]
        check(all(same), f"{what}: the weights are those of the undisturbed run on both machines")
        return folders, texts

    resumed("nothing changed", lambda folders: None, 9)
    resumed("the main machine had not yet committed", lambda folders: shutil.rmtree(folders[0] / "checkpoint-9"), 6)
    folders, texts = resumed("the other machine had not yet committed", lambda folders: shutil.rmtree(folders[1] / "checkpoint-9"), 6)
    check("checkpoint of step 9 of machine 0" in "".join(texts), "the newer checkpoint is reported", *texts)

    def damage(folders):
        file = folders[1] / "checkpoint-9" / "optimizer.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    folders, texts = resumed("a bit of the other machine's checkpoint changed", damage, 6)
    check("optimizer.safetensors" in "".join(texts) and (folders[1] / "checkpoint-9.damaged").exists(), "the damaged file is named and set aside", *texts)

    def remove_all(folder):
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    remove_all(folders[1])
    codes, texts = job(data, folders, "--resume_from_checkpoint", "true")
    check(codes == [3, 3] and "no checkpoint on machine 1 (rank 2" in "".join(texts) and str(folders[1]) in "".join(texts),
          f"a machine without checkpoints is named, and the job ends with {codes}", *texts)

    # The job was killed during its first save, which only machine 0 has finished.
    for rank, folder in enumerate(folders):
        shutil.rmtree(folder)
        folder.mkdir()
        shutil.copytree(whole[rank] / "checkpoint-3", folder / ("checkpoint-3" if rank == 0 else ".checkpoint-3.partial-1-1-host"))
    codes, texts = job(data, folders, launch=["--resume"])
    check(codes == [0, 0] and "was interrupted during its first save" in "".join(texts) and "resuming from" not in "".join(texts),
          f"a job that was killed during its first save starts again, and ends with {codes}", *texts)
    check((folders[0] / "abandoned-checkpoint-3").exists(), "the checkpoint of one machine is abandoned", names(folders[0]))
    check(codes == [0, 0] and all(weights(folder) == weights(whole[0]) for folder in folders), "its weights are those of the undisturbed run")

    killed_machines(data)

    shared = FOLDER / "shared"
    codes, texts = job(data, [shared, shared])
    check(codes == [2, 2] and "checkpoint.shared-folder" in "".join(texts), f"a shared folder is refused with {codes}", *texts)


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(exit_code())
