"""A small server that plays the model hub: listings, /resolve/ with a redirect to a storage host, Range, ETags, tokens,
and on request dropped connections and errors. Standard library only."""

import hashlib
import json
import re
import ssl
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    def __init__(self, certificate=None):
        """certificate: a file with a key and a certificate for localhost and 127.0.0.1; then the server speaks TLS."""
        self.repos = {}  # "org/name" -> {path: bytes}
        self.large = set()  # paths that are "large files": the listing has their hash, /resolve/ redirects
        self.token = None  # if set, everything needs it
        self.listed_sha256 = {}  # path -> a hash that is not the file's
        self.listed_without_size = set()
        self.drop_after = {}  # path -> list of byte counts: each transfer of the path is cut after the next one
        self.fail = {}  # path -> list of statuses to answer with first
        self.ignore_range = False
        self.chunk_delay = 0.0  # seconds between the pieces of a body
        self.requests = []  # (host, path, range, authorization)
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        # The same server under two names: a token must not travel from one to the other.
        scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}"
        self.storage = f"{scheme}://localhost:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def ranges_of(self, name):
        """The Range headers of the transfers of a file, in order."""
        return [r for _, path, r, _ in self.requests if path.startswith("/storage/") and path.endswith("/" + name)]


def _handler(hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self, status, body=b"", headers=()):
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            path = urllib.parse.unquote(url.path)
            with hub.lock:
                hub.requests.append(
                    (self.headers["Host"], path, self.headers["Range"], self.headers["Authorization"])
                )
                statuses = next((v for k, v in hub.fail.items() if path.endswith(k) and v), None)
                status = statuses.pop(0) if statuses else None
            if status:
                return self.answer(status, b"<html>sorry</html>", [("Retry-After", "0")])
            if path.startswith("/storage/"):
                org, name, file = path[len("/storage/") :].split("/", 2)
                return self.send_file(hub.repos[f"{org}/{name}"], file)
            if hub.token and self.headers["Authorization"] != f"Bearer {hub.token}":
                return self.answer(401, b'{"error": "Access to this model is restricted"}')
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
                return self.send_listing(match[1], match[2])
            if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                return self.resolve(match[1], match[2], match[3])
            self.answer(404)

        def send_listing(self, repo, revision):
            if repo not in hub.repos or revision not in ("main", "v2", COMMIT):
                return self.answer(404, b'{"error": "Repository not found"}')
            siblings = []
            for path, data in hub.repos[repo].items():
                item = {"rfilename": path}
                if path not in hub.listed_without_size:
                    item["size"] = len(data)
                    if path in hub.large:
                        sha = hub.listed_sha256.get(path, hashlib.sha256(data).hexdigest())
                        item["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 134}
                siblings.append(item)
            body = json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
            self.answer(200, body, [("Content-Type", "application/json")])

        def resolve(self, repo, commit, file):
            data = hub.repos.get(repo, {}).get(file)
            if data is None or commit != COMMIT:
                return self.answer(404)
            sha = hub.listed_sha256.get(file, hashlib.sha256(data).hexdigest())
            headers = [("X-Repo-Commit", COMMIT), ("X-Linked-Size", str(len(data)))]
            if file in hub.large:
                headers.append(("X-Linked-Etag", f'"{sha}"'))
            headers.append(("Location", f"{hub.storage}/storage/{repo}/{urllib.parse.quote(file)}?signature=secret"))
            self.answer(302, b"Found. Redirecting", headers)

        def send_file(self, files, file):
            data = files[file]
            start = 0
            match = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
            if match and not hub.ignore_range:
                start = int(match[1])
                if start >= len(data):
                    return self.answer(416, b"", [("Content-Range", f"bytes */{len(data)}")])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", '"storage-etag"')
            self.end_headers()
            body = data[start:]
            with hub.lock:
                drops = hub.drop_after.get(file)
                drop = drops.pop(0) if drops else None
            if drop is not None:
                self.wfile.write(body[:drop])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
                return
            for at in range(0, len(body), 65536):
                self.wfile.write(body[at : at + 65536])
                if hub.chunk_delay:
                    threading.Event().wait(hub.chunk_delay)

    return Handler
