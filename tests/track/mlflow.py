#!/usr/bin/env python3
"""The tracker for MLflow makes the calls of MLflow's REST API, even if the server fails, is slow, refuses requests or is missing.

    mlflow.py LOG_TO_MLFLOW

The server checks each request against the documented fields (https://mlflow.org/docs/latest/api_reference/rest-api.html).
"""
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

LOG_TO_MLFLOW = sys.argv[1]
API = "/prefix/api/2.0/mlflow/"
failures = 0


def check(holds, what):
    global failures
    print(("ok      " if holds else "FAILED  ") + what, flush=True)
    failures += not holds


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, failing=0, delay=0.0, refuses=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.failing, self.delay, self.refuses = failing, delay, refuses
        self.calls, self.metrics, self.params, self.problems, self.experiments, self.ended = [], [], {}, [], {}, None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, method, path, query, body):
        self.calls.append(path)
        if method == "GET" and path == "experiments/get-by-name":
            name = query["experiment_name"][0]
            if name in self.experiments:
                return 200, {"experiment": {"experiment_id": self.experiments[name], "name": name}}
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
        if path == "experiments/create":
            self.experiments[body["name"]] = "7"
            return 200, {"experiment_id": "7"}
        if path == "runs/create":
            self.require(body["experiment_id"] == "7" and body["run_name"] == "third" and body["start_time"] > 1.7e12, body)
            return 200, {"run": {"info": {"run_id": "abc", "status": "RUNNING"}}}
        if path == "runs/log-batch":
            self.require(body["run_id"] == "abc" and len(body["metrics"]) <= 1000 and len(body["params"]) <= 100, path)
            self.require(len(body["metrics"]) + len(body["params"]) <= 1000, "entities")
            for metric in body["metrics"]:
                self.require(set(metric) == {"key", "value", "timestamp", "step"} and metric["timestamp"] > 1.7e12, metric)
            self.metrics += body["metrics"]
            self.params.update({each["key"]: each["value"] for each in body["params"]})
            return 200, {}
        if path == "runs/update":
            self.require(body["run_id"] == "abc" and body["end_time"] > 1.7e12, body)
            self.ended = body["status"]
            return 200, {"run_info": {}}
        return 404, {"message": "no such call"}

    def require(self, holds, what):
        if not holds:
            self.problems.append(what)


class Handler(http.server.BaseHTTPRequestHandler):
    def handle_call(self):
        server = self.server
        url = urllib.parse.urlparse(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(server.delay)
        server.require(url.path.startswith(API) and self.headers["Authorization"] == "Bearer secret", self.path)
        if self.command == "POST":
            server.require(self.headers["Content-Type"] == "application/json", self.headers)
        path = url.path[len(API):]
        if server.failing > 0:
            server.failing -= 1
            status, out = 503, {}
        elif path == server.refuses:
            status, out = 400, {"error_code": "INVALID_PARAMETER_VALUE"}
        else:
            status, out = server.answer(self.command, path, urllib.parse.parse_qs(url.query), json.loads(body or b"{}"))
        text = json.dumps(out).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = handle_call

    def log_message(self, *_):
        pass


def run(port):
    start = time.monotonic()
    program = subprocess.run([LOG_TO_MLFLOW, f"http://127.0.0.1:{port}/prefix/"], capture_output=True, text=True, timeout=60)
    check(program.returncode == 0, "the run ends with code 0")
    check(float(program.stdout) < 1, f"log() does not wait: {program.stdout.strip()} s for 2001 logs")
    return program.stderr, time.monotonic() - start


def check_complete(server, what):
    losses = [each for each in server.metrics if each["key"] == "loss"]
    check([each["step"] for each in losses] == list(range(2000)) and losses[1]["value"] == 0.5, f"{what}: every loss, in order")
    check(server.ended == "FINISHED" and not server.problems, f"{what}: the run is ended, and every request is right {server.problems}")


def main():
    server = Server()
    lines, _ = run(server.server_port)
    check_complete(server, "a new experiment")
    check(lines == "", f"nothing is logged: {lines}")
    check(server.experiments == {"my experiment": "7"} and server.calls[:3] == ["experiments/get-by-name", "experiments/create", "runs/create"],
          "the experiment is looked up, made, and gets a run")
    check(server.params == {"learning_rate": "2e-05", "bf16": "true", "model _name_": "bert"}, f"parameters: {server.params}")
    last = {each["key"]: each["value"] for each in server.metrics[-2:]}
    check(last == {"eval_loss": "NaN", "eval_perplexity": "Infinity"}, f"numbers that are not finite: {last}")
    check({each["key"] for each in server.metrics} == {"loss", "grad norm _l2_", "eval_loss", "eval_perplexity"}, "names")
    calls = len(server.calls)
    run(server.server_port)
    check("experiments/create" not in server.calls[calls:], "an experiment that exists is used")

    server = Server(failing=2)
    lines, _ = run(server.server_port)
    check_complete(server, "a server that fails twice")
    check(lines.count("hasten: MLflow") == 1 and "503" in lines, f"one line is logged: {lines}")

    server = Server(delay=0.5)
    run(server.server_port)
    check_complete(server, "a slow server")

    server = Server(delay=4)
    lines, seconds = run(server.server_port)
    check("hasten: MLflow did not get" in lines, f"a server that is too slow for all values: {lines}")
    check(seconds < 24, f"the end waits {seconds:.1f} s for a slow server")

    server = Server(refuses="runs/create")
    lines, seconds = run(server.server_port)
    check(lines.count("hasten: MLflow") == 2 and "400" in lines and "4005" in lines, f"a server that refuses the run: {lines}")
    check(seconds < 5, "nobody waits for a server that refuses")

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    lines, seconds = run(port)
    check(lines.count("hasten: MLflow") == 2 and "4005" in lines, f"a missing server: {lines}")
    check(seconds < 20, f"the end waits {seconds:.1f} s for a missing server")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
