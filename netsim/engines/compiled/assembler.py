"""From LLVM's language to machine code: what is done once, before the code is kept.

Two forms of it: objects, which LLVM makes ready to run, and libraries, which the system loads
itself, without LLVM, in a tenth of the time. Those need a linker, which most systems have.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

from netsim.engines.compiled.store import SYMBOL

_SPEED = 3  # the highest level of optimization
# What machine code may call beside itself: the C library's functions, which any process has.
_KNOWN = {"memcpy", "memset", "memmove", "fmod", "pow"}

_engines: list[llvm.ExecutionEngine] = []  # these own the code


def assemble(text: str) -> llvm.ModuleRef:
    """The code at its fastest.

    Nobody but the entry is called from outside. As that is told, it may take in whom it calls,
    and others are not handed what they do not use, of some seventy words of arguments.
    """
    module = llvm.parse_assembly(text.replace("\ndefine linkonce_odr ", "\ndefine internal "))
    called = {function.name for function in module.functions if function.is_declaration}
    unknown = {name for name in called if not name.startswith("llvm.")} - _KNOWN
    assert not unknown, f"compiled code must stand alone, but it calls {sorted(unknown)}"
    _optimize(module, _target())
    return module


def object_of(module: llvm.ModuleRef) -> bytes:
    """The code as LLVM loads it."""
    return bytes(_target().emit_object(module))


def library_of(module: llvm.ModuleRef) -> bytes | None:
    """The code as the system loads it; None where there is no linker, or none that we know."""
    return link(bytes(_target(library=True).emit_object(module)))


def link(code: bytes) -> bytes | None:
    """A library of an object whose code may lie anywhere."""
    linker = shutil.which("ld")
    if linker is None or sys.platform != "linux":
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "code.o", Path(folder) / "code.so"
        given.write_bytes(code)
        command = [linker, "-shared", "-z", "noexecstack", "-o", str(made), str(given)]
        done = subprocess.run(command, capture_output=True, check=False)
        return made.read_bytes() if done.returncode == 0 else None


def load_object(code: bytes) -> int:
    """Make an object ready to run; the address of its entry."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(SYMBOL))


def processor() -> str:
    """What the code is made for."""
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _optimize(module: llvm.ModuleRef, target: llvm.TargetMachine) -> None:
    if not hasattr(llvm, "create_pass_builder"):  # llvmlite 0.43: slower, and no more
        return
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(_SPEED))
    builder.getModulePassManager().run(module, builder)


def _target(*, library: bool = False) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=_SPEED,
        jit=not library,
        reloc="pic" if library else "default",
        codemodel="default" if library else "jitdefault",
    )
