"""The Python program that the interpreter of device tpu runs (tpu_module.cpp).

`check` returns None, `start` and `programs` a number. On an error, `check` and `start` return a tuple of the error's code and its four texts:
what, got, expected, hint.
"""
import contextlib
import importlib
import importlib.metadata as metadata
import importlib.util
import io
import operator
import os
import re
import sys

COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne}
INSTALL = "python3 -m pip install torch==%s torch_tpu libtpu"


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def torch_requirements(package):
    """Returns the versions of torch that the package's metadata requires, such as [(">=", "2.11.0")]."""
    for line in metadata.requires(package) or []:
        if re.match(r"torch\b(?!-)", line):
            return re.findall(r"([<>=!]=|[<>])\s*([\d.]+)", line.split(";")[0])
    return []


def check(folder, libtorch, needs_libtpu):
    """Checks the packages without importing them, so that errors are reported at once. `folder` holds the LibTorch of this process."""
    sys.path.insert(0, folder)
    for package in ["torch_tpu"] + (["libtpu"] if needs_libtpu else []):
        if importlib.util.find_spec(package) is None:
            return ("device.tpu-package", f"the Python package {package}", "not found in " + ", ".join(filter(None, sys.path)), "",
                    INSTALL % libtorch + " (in the active virtual environment, or add the folder of the packages to PYTHONPATH)")
    required = torch_requirements("torch_tpu")
    if not all(COMPARE[sign](numbers(libtorch), numbers(version)) for sign, version in required):
        return ("device.tpu-versions", "LibTorch for torch_tpu " + metadata.version("torch_tpu"), libtorch,
                "torch" + ",".join(sign + version for sign, version in required), "build hasten with such a LibTorch, or: " + INSTALL % libtorch)
    return None


def topology(processes):
    """Returns the topology of this machine's chips as torch_tpu lays them out, one per process; in a row if PCI shows none."""
    from torch_tpu._internal.utils import hardware
    return hardware.get_tpu_topology(processes) or f"{processes},1,1"


def start(libtorch, slice_processes):
    output = io.StringIO()  # torch_tpu reports its progress on standard error
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            importlib.import_module("torch")  # torch_tpu expects that it is loaded
            import torch_tpu._loader
            if int(slice_processes) > 0 and not os.environ.get("TORCH_TPU_TOPOLOGY"):
                os.environ["TORCH_TPU_TOPOLOGY"] = topology(int(slice_processes))
            torch_tpu._loader._init_device("tpu")
            from torch_tpu._internal.device import _device_ops_backend
            return _device_ops_backend._get_device_count()  # connects here: an operator that connects ends the process if it fails
    except ImportError as error:
        return ("device.tpu-package", "importing torch_tpu", str(error), "", INSTALL % libtorch)
    except Exception as error:
        return ("device.tpu-failed", "opening the TPU", f"{type(error).__name__}: {error}", "", "check whether another process uses the TPU")


def programs():
    """Returns how many programs were compiled so far because no cache had them."""
    from torch_tpu._internal.device import _device_ops_backend
    return _device_ops_backend._get_cache_misses()


def stop():
    import atexit
    atexit._run_exitfuncs()
