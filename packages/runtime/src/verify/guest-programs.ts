/** Small network programs for guests that have Python or Node. The address is an argument. */
import { CannotCheck, type Subject } from "./hazard.ts";

/** One program in each language that can run it. */
type GuestProgram = { readonly python: string; readonly node: string };

/** The argv that runs the program in this guest. */
export async function programFor(
  subject: Subject,
  program: GuestProgram,
  args: readonly string[],
): Promise<string[]> {
  // Not by starting them: that takes seconds in an emulated guest.
  const found = await subject.sh("command -v python3 || command -v node || true");
  const command = found.trim().split("/").at(-1);
  if (command === "python3") return [command, "-c", program.python, ...args];
  if (command === "node") return [command, "-e", program.node, "--", ...args];
  throw new CannotCheck("no python3 or node");
}

/**
 * Arguments: ADDRESS PORT FILE. A client and a server in one process exchange numbers over TCP. The file has
 * `open N`, or `aborted REASON` after the connection has failed.
 */
export const echoPair: GuestProgram = {
  python: `
import os, socket, sys, threading, time
address, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def say(text):
    with open(path + '.new', 'w') as file:
        file.write(text)
    os.rename(path + '.new', path)
def serve(server):
    try:
        peer, _ = server.accept()
        while True:
            data = peer.recv(64)
            if not data:
                return
            peer.sendall(data)
    except OSError:
        pass
server = socket.create_server((address, port))
threading.Thread(target=serve, args=(server,), daemon=True).start()
try:
    client = socket.create_connection((address, port), 120)
    for count in range(1, 6000):
        client.sendall(b'%16d' % count)
        got = b''
        while len(got) < 16:
            piece = client.recv(16 - len(got))
            if not piece:
                raise OSError('end of stream')
            got += piece
        say('open %d' % count)
        time.sleep(0.1)
except OSError as error:
    say('aborted %s' % error)
`,
  node: `
const fs = require("node:fs"), net = require("node:net");
const [address, port, path] = process.argv.slice(-3);
const say = (text) => { fs.writeFileSync(path + ".new", text); fs.renameSync(path + ".new", path); };
const server = net.createServer((peer) => peer.on("error", () => {}).pipe(peer));
server.listen(Number(port), address, () => {
  // No deadline: setTimeout() below sets it.
  const client = net.connect(Number(port), address);
  let count = 0, done = false;
  const end = (why) => { if (!done) say("aborted " + why); done = true; setTimeout(() => process.exit(), 60000); };
  const next = () => { if (!done && ++count < 6000) client.write(String(count)); };
  client.setTimeout(120000, () => end("timeout"));
  client.on("connect", next).on("error", (error) => end(error.code)).on("close", () => end("closed"));
  client.on("data", () => { say("open " + count); setTimeout(next, 100); });
});
`,
};

/**
 * Arguments: TOKEN ADDRESS BROADCAST PORT FILE. Offers its token over TCP and UDP, and asks for tokens at its
 * own address and by broadcast. The file gets a line `got TOKEN` for each token that came, and `done` last.
 */
export const tokenExchange: GuestProgram = {
  python: `
import socket, sys, threading, time
token, address, broadcast, port, path = sys.argv[1:6]
port = int(port)
lock = threading.Lock()
def note(text):
    with lock, open(path, 'a') as file:
        file.write(text + '\\n')
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
udp.bind(('', port))
tcp = socket.create_server(('', port))
def listen():
    while True:
        note('got ' + udp.recvfrom(64)[0].decode('latin-1'))
def accept():
    while True:
        peer, _ = tcp.accept()
        peer.sendall(token.encode())
        peer.close()
for work in (listen, accept):
    threading.Thread(target=work, daemon=True).start()
for _ in range(10):
    for target in (broadcast, '255.255.255.255'):
        try:
            udp.sendto(token.encode(), (target, port))
        except OSError:
            pass
    try:
        with socket.create_connection((address, port), 3) as peer:
            note('got ' + peer.recv(64).decode('latin-1'))
    except OSError as error:
        note('refused %s' % error)
    time.sleep(0.3)
note('done')
time.sleep(180)
`,
  node: `
const dgram = require("node:dgram"), fs = require("node:fs"), net = require("node:net");
const [token, address, broadcast, port, path] = process.argv.slice(-5);
const note = (text) => fs.appendFileSync(path, text + "\\n");
const udp = dgram.createSocket("udp4").on("error", () => {});
udp.on("message", (data) => note("got " + data.toString("latin1").slice(0, 64)));
net.createServer((peer) => peer.on("error", () => {}).end(token)).listen(Number(port), "0.0.0.0");
udp.bind(Number(port), () => {
  udp.setBroadcast(true);
  let turns = 0;
  const turn = () => {
    for (const target of [broadcast, "255.255.255.255"]) udp.send(token, Number(port), target, () => {});
    // No deadline: the process ends after three minutes.
    net.connect(Number(port), address)
      .on("data", (data) => note("got " + data.toString("latin1").slice(0, 64)))
      .on("error", (error) => note("refused " + error.code));
    if (++turns < 10) setTimeout(turn, 300);
    else setTimeout(() => note("done"), 300);
  };
  turn();
});
setTimeout(() => process.exit(), 180000);
`,
};
