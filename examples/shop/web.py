"""Takes orders: POST /order?name=NAME. Everything an order needs is on disk before the answer.

An order that was not answered can be sent again under the same name: the requests that add its mail
and its export have idempotency keys, so each is carried out only once.
"""

import http.client
import http.server
import json
import os
import socket
from urllib.parse import parse_qs, urlsplit

SOCKET = os.path.join(os.environ["SEXTON_DATA"], "sexton.sock")
PORT = int(os.environ.get("SHOP_PORT", "8017"))


class Refused(Exception):
    """The coordinator refused the request, or is not running."""


def ask(path, once=None, /, **members):
    """Sends a request to the coordinator; a request with an idempotency key is carried out only once."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(SOCKET)
        headers = {"Content-Type": "application/json"}
        if once:
            headers["Idempotency-Key"] = once
        connection.request("POST", "/v1/" + path, json.dumps(members), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Refused(str(error)) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Refused(said.get("detail", "no reason"))
    return said


def take(order):
    """Takes an order while holding the lock on the stock."""
    stock = {"key": "stock", "owner": order}
    token = ask("locks/acquire", **stock, ttl=10, wait=10)["token"]
    mail = ask("queues/push", order + "-mail", queue="mails", body=order)["id"]
    export = ask(
        "tasks/add",
        order + "-export",
        name=order,
        group="exports",
        launch={"command": ["./export.sh", order], "dir": os.getcwd()},
    )["id"]
    ask("locks/release", **stock, token=token)
    return {"order": order, "mail": mail, "export": export}


class Shop(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = urlsplit(self.path)
        names = parse_qs(asked.query).get("name", [])
        if asked.path != "/order" or len(names) != 1:
            return self.tell(404, {"error": "POST /order?name=NAME"})
        try:
            return self.tell(200, take(names[0]))
        except Refused as refused:
            return self.tell(503, {"error": str(refused)})

    def tell(self, status, said):
        body = json.dumps(said).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Shop)
    print("ready on port %d" % PORT, flush=True)
    server.serve_forever()
