/** Servers that run in a guest, all on its loopback address only. */
import { until } from "@forkd/test-support";
import type { Sandbox } from "@forkd/sdk";

export const guestPorts = { http: 8000, webSocket: 8001, echo: 8002, hostile: 8003, files: 8004 } as const;

const script = `
import base64, hashlib, http.server, json, os, socket, socketserver, threading, time

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self, body, **headers):
        self.send_response(200)
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n in range(3):
                text = b"data: %d\\n\\n" % n
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(text), text))
                while not os.path.exists("/tmp/event-%d" % n): time.sleep(0.01)
            return self.wfile.write(b"0\\r\\n\\r\\n")
        if self.path == "/wait":
            time.sleep(3600)
        facts = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
        self.answer(json.dumps(facts).encode(), Set_Cookie="guest=1")
    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left > 0:
            piece = self.rfile.read(min(left, 65536))
            if not piece: return
            left -= len(piece)
            digest.update(piece)
        self.answer(digest.hexdigest().encode())

class WebSocket(socketserver.BaseRequestHandler):
    def handle(self):
        head = b""
        while b"\\r\\n\\r\\n" not in head: head += self.request.recv(4096)
        key = [line.split(b": ")[1] for line in head.split(b"\\r\\n") if line.lower().startswith(b"sec-websocket-key")][0]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.request.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        while True:
            frame = self.request.recv(2)
            if len(frame) < 2 or frame[0] & 15 == 8: return
            mask = self.request.recv(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.request.recv(frame[1] & 127)))
            self.request.sendall(bytes([0x81, len(data)]) + data)

class TcpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
        self.request.sendall(b"end")

class Hostile(socketserver.BaseRequestHandler):
    def handle(self):
        path = self.request.recv(65536).split(b" ")[1]
        try:
            if path == b"/garbage": self.request.sendall(os.urandom(4096))
            elif path == b"/headers":
                self.request.sendall(b"HTTP/1.1 200 OK\\r\\n")
                while True: self.request.sendall(b"X-A: " + b"y" * 1000 + b"\\r\\n")
            elif path == b"/smuggle":
                self.request.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n")
            elif path == b"/half": self.request.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf")
            elif path == b"/flood":
                self.request.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
                while True: self.request.sendall(b"z" * 65536)
        except OSError: pass

def serve(port, handler, kind=socketserver.ThreadingTCPServer):
    kind.allow_reuse_address = kind.daemon_threads = True
    threading.Thread(target=kind(("127.0.0.1", port), handler).serve_forever).start()

os.chdir("/srv")
serve(${guestPorts.http}, Echo, http.server.ThreadingHTTPServer)
serve(${guestPorts.webSocket}, WebSocket)
serve(${guestPorts.echo}, TcpEcho)
serve(${guestPorts.hostile}, Hostile)
serve(${guestPorts.files}, http.server.SimpleHTTPRequestHandler, http.server.ThreadingHTTPServer)
`;

/** Resolves when they accept connections. */
export async function startServers(sandbox: Sandbox): Promise<void> {
  await sandbox.files.write("/root/servers.py", script);
  await sandbox.files.write("/srv/file.txt", "content of a file\n");
  await sandbox.commands.run(["python3", "/root/servers.py"], { background: true });
  for (const port of Object.values(guestPorts)) {
    await until(`port ${port} accepts connections`, async () => {
      try {
        (await sandbox.ports.connect(port)).destroy();
        return true;
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "port_refused") return false;
        throw error;
      }
    });
  }
}
