# SPDX-License-Identifier: Apache-2.0
"""An artifact behind HTTP: a process without a compiler that answers requests of changing sizes.

    python examples/serve.py                    # export, serve, ask, report
    python examples/serve.py --requests 100000  # as long as it takes to see memory grow

A request is a numpy array of any number of rows, as `numpy.save` writes it; so is the answer. The
server loads the artifact, of which the weights are a part, and imports neither LLVM nor isl.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import tcsym

TEXT = """
def classify(float(B,D) X, float(H,D) U, float(H) b, float(K,H) V, float(K) c) -> (scores) {
    A(n,h) +=! X(n,d) * U(h,d)
    A(n,h) = max(A(n,h) + b(h), 0)
    scores(n,k) +=! A(n,h) * V(k,h)
    scores(n,k) = scores(n,k) + c(k)
}
"""
D, H, K, MOST_ROWS = 64, 128, 10, 64
COMPILERS = {"llvmlite", "islpy", "lark"}


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"U": (H, D), "b": (H,), "V": (K, H), "c": (K,)}
    return {name: random.standard_normal(s, dtype=np.float32) for name, s in shapes.items()}


# ---- the server


def serve(folder: Path) -> None:
    """Answer until the process is ended; the first line of output is the port."""
    kernel = tcsym.load(folder)
    assert not COMPILERS & set(sys.modules), "the server has loaded a compiler"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # one connection for many requests
        wbufsize = -1  # headers and body go out together
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                X = np.load(io.BytesIO(body), allow_pickle=False)
                out = io.BytesIO()
                np.save(out, kernel(X))
                self.answer(200, out.getvalue())
            except (tcsym.TCError, ValueError) as error:
                self.answer(400, str(error).encode())

        def do_GET(self) -> None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.answer(200, json.dumps({"peak_kib": peak}).encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


# ---- who asks


class Client:
    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, X: np.ndarray) -> np.ndarray:
        out = io.BytesIO()
        np.save(out, X)
        self.connection.request("POST", "/", out.getvalue())
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(body.decode())
        return np.load(io.BytesIO(body))

    def peak_kib(self) -> int:
        self.connection.request("GET", "/")
        return int(json.load(self.connection.getresponse())["peak_kib"])


def ask(port: int, n_requests: int) -> None:
    """Requests of random numbers of rows; every 25th answer is compared with the interpreter."""
    reference = tcsym.define(TEXT).classify.reference
    given, random, client = weights(), np.random.default_rng(1), Client(port)
    seconds = []
    warm = max(1, n_requests // 10)
    settled = 0
    for k in range(n_requests):
        X = random.standard_normal((random.integers(1, MOST_ROWS + 1), D), dtype=np.float32)
        started = time.perf_counter()
        scores = client.ask(X)
        seconds.append(time.perf_counter() - started)
        if k % 25 == 0:
            np.testing.assert_allclose(scores, reference(X, **given), rtol=1e-3, atol=1e-3)
        if k + 1 == warm:
            settled = client.peak_kib()
    p50, p99 = np.percentile(1e3 * np.array(seconds[warm:] or seconds), (50, 99))
    grown = client.peak_kib() - settled
    print(f"{n_requests} requests of 1 to {MOST_ROWS} rows: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"memory of the server after the first {warm}: {grown} KiB more")
    try:
        client.ask(np.zeros((2, D + 1), np.float32))
    except RuntimeError as error:
        print(f"a wrong request: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help="serve this artifact")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    with tempfile.TemporaryDirectory() as scratch:
        kernel = tcsym.define(TEXT).classify
        folder = kernel.export(Path(scratch) / "artifact", constants=weights())
        command = [sys.executable, __file__, "--serve", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                ask(int(server.stdout.readline()), arguments.requests)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
