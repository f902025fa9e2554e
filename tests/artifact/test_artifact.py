# SPDX-License-Identifier: Apache-2.0
"""Artifacts: from C, through TVM's FFI, and from Python without what compiles."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import (
    BoundsError,
    ImmutableError,
    MissingError,
    OptionError,
    RankError,
    SizeError,
    TCTypeError,
)
from tests.entered import python_frames

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MLP = """def mlp(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
    Y(i,j) +=! X(i,k) * W(k,j)
    Y(i,j) = fmax(Y(i,j) + b(j), 0)
}"""
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("objcopy") is None,
    reason="artifacts are linked by a C compiler",
)


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "mlp"
    kernel = tcsym.define(MLP, target="cpu:avx2")
    return kernel.export(folder, bounds={"B": 8}, targets=["cpu:novector", "cpu:avx2"])


def test_a_folder_has_a_library_a_header_and_a_manifest(mlp: Path) -> None:
    assert {x.name for x in mlp.iterdir()} == {"libmlp.so", "mlp.h", "manifest.json"}
    manifest = json.loads((mlp / "manifest.json").read_text())
    assert manifest["sizes"] == ["B", "K", "N"] and manifest["bounds"] == {"B": 8}
    assert [x["name"] for x in manifest["levels"]] == ["avx2", "novector"]
    assert manifest["outputs"] == [{"name": "Y", "type": "float32", "shape": ["B", "N"]}]
    signature = tcsym.define(MLP).signature
    assert repr(tcsym.load(mlp)) == f"<tcsym artifact {signature}>"


def test_results_are_those_of_the_kernel_at_all_sizes(mlp: Path) -> None:
    loaded, kernel = tcsym.load(mlp), tcsym.define(MLP, target=f"cpu:{tcsym.load(mlp).level}")
    for b, k, n in ((2, 3, 4), (8, 100, 33), (0, 2, 2), (1, 0, 5), (7, 17, 1)):
        given = _random(b, k), _random(k, n), _random(n)
        np.testing.assert_array_equal(loaded(*given), kernel(*given))
    strided = _random(100, 8).T
    given = strided, _random(100, 3), _random(3)
    np.testing.assert_array_equal(loaded(*given), kernel(strided.copy(), *given[1:]))


def test_calls_of_usual_arrays_enter_native_code(mlp: Path) -> None:
    loaded = tcsym.load(mlp)
    given = _random(2, 3), _random(3, 4), _random(4)
    want = loaded(*given)
    tcsym.get_num_threads()
    assert not python_frames(lambda: loaded._enter(*given))
    np.testing.assert_array_equal(loaded(*given), want)
    out = np.empty((2, 4), np.float32)
    assert loaded(*given, out=out) is out
    np.testing.assert_array_equal(out, want)


def test_wrong_calls_are_errors_of_their_kinds(mlp: Path) -> None:
    loaded = tcsym.load(mlp)
    x, w, b = _random(2, 3), _random(3, 4), _random(4)
    with pytest.raises(SizeError, match="`B` is 9, but it is at most 8 here"):
        loaded(_random(9, 3), w, b)
    with pytest.raises(SizeError, match="`W` has shape"):
        loaded(x, _random(4, 4), b)
    with pytest.raises(TCTypeError, match="`W` is float64"):
        loaded(x, w.astype(np.float64), b)
    with pytest.raises(RankError, match="`b` has 2 dimensions"):
        loaded(x, w, w)
    with pytest.raises(MissingError, match="`b` is missing"):
        loaded(x, w)


def test_what_a_kernel_checks_and_what_callers_give(tmp_path: Path) -> None:
    kernel = tcsym.define(
        """def look(float(V,D) T, int32(N) at) -> (float(N,D) E, float(P) Z) {
            E(n,d) = T(at(n),d)
            Z(p) = p
        }""",
        target="cpu:novector",
    )
    loaded = tcsym.load(kernel.export(tmp_path / "look"))
    table, at = _random(5, 3), np.array([1, 4], np.int32)
    result = loaded(table, at, sizes={"P": 3})
    np.testing.assert_array_equal(result.E, table[at])
    assert result.Z.tolist() == [0, 1, 2]
    with pytest.raises(BoundsError, match="T"):
        loaded(table, at + 3, sizes={"P": 3})
    with pytest.raises(SizeError, match="free size `P` is missing"):
        loaded(table, at)


def test_what_is_updated_is_the_callers(tmp_path: Path) -> None:
    text = "def add(inout float(N) Y, float(N) X) -> () { Y(n) += X(n) }"
    folder = tcsym.define(text, target="cpu:novector").export(tmp_path / "add")
    loaded, X = tcsym.load(folder), _random(5)
    for memory in (np.zeros(5, np.float32), np.zeros(15, np.float32)[::3]):
        assert loaded(memory, X) is None
        np.testing.assert_array_equal(memory, X)
    assert not python_frames(lambda: loaded._enter(memory.copy(), X))
    assert "0: float32(N) Y (updated)" in (folder / "add.h").read_text()
    with pytest.raises(ImmutableError, match="`Y` is updated in place, but overlaps `X`"):
        loaded(X, X)
    with pytest.raises(ImmutableError, match="read-only"):
        loaded(np.broadcast_to(X[:1], 5), X)
    ffi = pytest.importorskip("tvm_ffi")
    module, Y = ffi.load_module(str(folder / "libadd.so")), np.zeros(5, np.float32)
    module.add(*map(ffi.from_dlpack, (Y, X)))
    np.testing.assert_array_equal(Y, X)
    with pytest.raises(ValueError, match="`Y` overlaps `X`"):
        module.add(*map(ffi.from_dlpack, (X, X)))


def test_c_programs_call_it_by_its_header(mlp: Path, tmp_path: Path) -> None:
    program = tmp_path / "main"
    command = ["cc", "-Wall", "-Werror", str(HERE / "main.c"), f"-I{mlp}", f"-L{mlp}", "-lmlp"]
    subprocess.run([*command, f"-Wl,-rpath,{mlp}", "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "2 x 2",
        "0: 4 0 10 0",
        "0: 0",
        "4: mlp: `W` has size 4 on axis 0, expected 3",
        "3: mlp: `W` has another type than float32",
        "4: mlp: size `B` is 9, but it is at most 8 here",
    ]


def test_memory_that_is_missing_is_an_error_unless_there_is_nothing_in_it(mlp: Path) -> None:
    library = ctypes.CDLL(str(mlp / "libmlp.so"))
    library.mlp_error.restype = ctypes.c_char_p
    shapes = {"x": (2, 3), "w": (3, 2), "b": (2,), "y": (2, 2)}
    arrays = [np.ones(shape, np.float32) for shape in shapes.values()]
    sizes, nothing = (ctypes.c_int64 * 3)(2, 3, 2), (ctypes.c_int64 * 3)(0, 3, 2)

    def buffers(*missing: int) -> Any:
        at = [None if k in missing else x.ctypes.data for k, x in enumerate(arrays)]
        return (ctypes.c_void_p * 4)(*at)

    assert library.mlp_run(buffers(), sizes) == 0
    for k in range(4):
        assert library.mlp_run(buffers(k), sizes) == 1
        assert b"the memory of `" in library.mlp_error()
    assert library.mlp_run(None, sizes) == library.mlp_run(buffers(), None) == 1
    assert library.mlp_run(buffers(0, 3), nothing) == 0
    assert library.mlp_run(buffers(1), nothing) == 1


def test_the_loader_needs_no_compiler(mlp: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("islpy", "llvmlite", "lark", "msgspec", "ml_dtypes", "click"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, tcsym
f = tcsym.load({str(mlp)!r})
X = np.ones((2, 3), np.float32)
print(f(X, np.ones((3, 4), np.float32), np.ones(4, np.float32)).sum())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "32.0\n"


def test_tvm_ffi_calls_it(mlp: Path) -> None:
    ffi = pytest.importorskip("tvm_ffi")
    module = ffi.load_module(str(mlp / "libmlp.so"))
    given = _random(2, 3), _random(3, 4), _random(4)
    result = np.empty((2, 4), np.float32)
    module.mlp(*map(ffi.from_dlpack, (*given, result)))
    np.testing.assert_allclose(result, tcsym.define(MLP).reference(*given), 1e-5, 1e-5)
    with pytest.raises(ValueError, match="`W` has size 2 on axis 0, expected 3"):
        module.mlp(*map(ffi.from_dlpack, (given[0], _random(2, 4), given[2], result)))


def test_half_a_library_is_not_loaded(mlp: Path, tmp_path: Path) -> None:
    """The system maps it, and ends the process where it reads what is not there."""
    part = tmp_path / "part"
    shutil.copytree(mlp, part)
    with open(part / "libmlp.so", "r+b") as library:
        library.truncate(1000)
    with pytest.raises(OptionError, match=r"`libmlp\.so` has not the"):
        tcsym.load(part)


def test_other_folders_and_targets_are_refused(tmp_path: Path) -> None:
    kernel = tcsym.define(MLP)
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(OptionError, match="no artifact"):
            kernel.export(place)
    with pytest.raises(OptionError, match=r"mine\.txt` is a file"):
        kernel.export(tmp_path / "mine.txt" / "x")
    with pytest.raises(OptionError, match="no artifacts are made for target `cpu:sse9`"):
        kernel.export(tmp_path / "x", targets=["cpu:sse9"])
    with pytest.raises(OptionError, match="is no artifact"):
        tcsym.load(tmp_path)
    assert {x.name for x in tmp_path.iterdir()} == {"mine.txt"}


GROWN = "def grown(float(N) X) -> (float(N,P) Y) { Y(i,p) = X(i) }"


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("p", [-1, 2**63, 2**63 - 1, 2**50, 2.0, True, "3", None, [3]])
def test_sizes_that_are_none_are_refused_as_kernels_do(n: int, p: object, tmp_path: Path) -> None:
    kernel = tcsym.define(GROWN).grown
    x, loaded = np.ones(n, np.float32), tcsym.load(kernel.export(tmp_path / "grown"))
    if isinstance(p, int) and 0 < p < 2**51 and not n and p is not True:
        return  # an array of no elements
    messages = []
    for call in (kernel, kernel.reference, kernel.plan().session(), loaded):
        with pytest.raises((tcsym.SizeError, MemoryError)) as found:
            call(x, sizes={"P": p})
        messages.append(str(getattr(found.value, "message", "")).removeprefix("grown: "))
    assert len(set(messages)) == 1
