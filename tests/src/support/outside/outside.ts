/**
 * The outside world of a test: a network namespace with servers at an address of a range for documentation,
 * and a DNS server on the loopback that knows only the names that the test gives it. Needs root.
 */
import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runProgram, Scope } from "@forkd/base";
import packet from "dns-packet";
import { testDir } from "../test-dir.ts";
import type { Seen } from "./server.ts";

export type Outside = AsyncDisposable & {
  /** where the servers are */
  readonly address: string;
  /** the host's end, where nothing of the test listens */
  readonly hostAddress: string;
  /** for the setting network_resolver */
  readonly resolver: string;
  /** PEM file of the CA that signed the certificates of the servers */
  readonly caPath: string;
  /** what names resolve to: a list, or a function that is asked for each query */
  readonly names: Map<string, readonly string[] | (() => readonly string[])>;
  /** names that were asked for */
  readonly queries: string[];
  seen(): Promise<Seen[]>;
  lines(): Promise<string[]>;
  forget(): Promise<void>;
};

const serverPath = fileURLToPath(new URL("./server.js", import.meta.url));
const answerMs = 30_000;

export async function openOutside(names: readonly string[]): Promise<Outside> {
  await using scope = new Scope();
  const { path: dir } = scope.use(await testDir());
  const [key, cert, caPath] = await makeCertificates(dir, names);
  const { address, hostAddress, namespace } = await makeNamespace(scope);
  const child = spawn("ip", ["netns", "exec", namespace, process.execPath, serverPath, address, key, cert], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  scope.defer(async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  });
  await once(child, "message", { signal: AbortSignal.timeout(answerMs) });
  let last = 0;
  const ask = async (what: string): Promise<unknown> => {
    const id = ++last;
    const answer = new Promise<unknown>((resolve) => {
      const listen = (message: { id: number; answer: unknown }) => {
        if (message.id !== id) return;
        child.off("message", listen);
        resolve(message.answer);
      };
      child.on("message", listen);
    });
    child.send({ ask: what, id });
    return answer;
  };
  const known: Outside["names"] = new Map(names.map((name) => [name, [address]]));
  const queries: string[] = [];
  const resolver = await startDns(scope, known, queries);
  const kept = scope.keep();
  return {
    address,
    hostAddress,
    resolver,
    caPath,
    names: known,
    queries,
    // Casts: the server answers in these forms.
    seen: async () => (await ask("seen")) as Seen[],
    lines: async () => (await ask("lines")) as string[],
    forget: async () => void (await ask("forget")),
    [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose](),
  };
}

const slots = 60;

async function makeNamespace(
  scope: Scope,
): Promise<{ address: string; hostAddress: string; namespace: string }> {
  const ip = (...args: string[]) => runProgram("ip", args);
  // Test files run at the same time, each with its own four addresses. A namespace can be made only once, so it
  // reserves them.
  let slot = process.pid % slots;
  for (let tries = 1; ; tries++, slot = (slot + 1) % slots) {
    const made = await ip("netns", "add", `fkt-${slot}`).then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    if (!made) break;
    if (tries === slots) throw made.error;
  }
  const namespace = `fkt-${slot}`;
  const [hostAddress, address] = [`203.0.113.${4 * slot + 1}`, `203.0.113.${4 * slot + 2}`];
  const [near, far] = [`fka${slot}`, `fkb${slot}`];
  scope.defer(async () => void (await ip("netns", "delete", namespace)));
  await ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace);
  scope.defer(async () => void (await ip("link", "delete", near).catch(() => undefined)));
  await ip("address", "add", `${hostAddress}/30`, "dev", near);
  await ip("link", "set", near, "up");
  const inside = (...args: string[]) => ip("-n", namespace, ...args);
  await inside("address", "add", `${address}/30`, "dev", far);
  await inside("link", "set", far, "up");
  await inside("link", "set", "lo", "up");
  return { address, hostAddress, namespace };
}

async function makeCertificates(dir: string, names: readonly string[]): Promise<[string, string, string]> {
  const at = (name: string) => join(dir, name);
  const openssl = (...args: string[]) => runProgram("openssl", args, { timeoutMs: answerMs });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const ca = ["-keyout", at("ca.key"), "-out", at("ca.crt"), "-subj", "/CN=test outside"];
  await openssl("req", "-x509", ...newKey, ...ca, "-days", "2");
  const subject = [
    "-subj",
    `/CN=${names[0]}`,
    "-addext",
    `subjectAltName=${names.map((name) => `DNS:${name}`).join(",")}`,
  ];
  const signer = ["-CA", at("ca.crt"), "-CAkey", at("ca.key"), "-days", "2"];
  await openssl(
    "req",
    "-x509",
    ...newKey,
    "-keyout",
    at("key"),
    "-out",
    at("crt"),
    ...subject,
    ...signer,
    "-addext",
    "basicConstraints=critical,CA:FALSE",
  );
  return [at("key"), at("crt"), at("ca.crt")];
}

async function startDns(scope: Scope, names: Outside["names"], queries: string[]): Promise<string> {
  const socket = createSocket("udp4");
  socket.on("message", (bytes, { address, port }) => {
    const { id = 0, questions = [] } = packet.decode(bytes);
    const [question] = questions;
    if (!question) return;
    queries.push(question.name);
    const found = names.get(question.name);
    const addresses = typeof found === "function" ? found() : (found ?? []);
    const isKnown = found !== undefined;
    const answers = addresses
      .filter((each) => question.type === (each.includes(":") ? "AAAA" : "A"))
      .map((data) => ({ type: question.type as "A", name: question.name, ttl: 1, data }));
    const flags = packet.RECURSION_AVAILABLE | packet.RECURSION_DESIRED | (isKnown ? 0 : 3);
    socket.send(packet.encode({ type: "response", id, flags, questions, answers }), port, address);
  });
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  scope.defer(() => new Promise<void>((resolve) => socket.close(() => resolve())));
  return `127.0.0.1:${socket.address().port}`;
}
