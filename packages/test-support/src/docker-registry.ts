/** The registry of Debian's package docker-registry, as a process with its own files and port. */
import { spawn, execFileSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { temporaryDirectory } from "./temporary-directory.ts";

type RegistryFacts = {
  /** demands this password of the user "user" */
  password?: string;
  /** serves TLS for localhost, with a certificate that `caFile` signs */
  tls?: boolean;
  port?: number;
};

export type TestRegistry = {
  /** `127.0.0.1:PORT`, or `localhost:PORT` with TLS */
  readonly address: string;
  readonly directory: string;
  readonly caFile: string;
  /** Kills the process at once; start() starts it again on the same port and files. */
  kill(): Promise<void>;
  start(): Promise<void>;
};

const extracted = fileURLToPath(
  new URL("../../../../.cache/docker-registry/usr/bin/docker-registry", import.meta.url),
);
const startMs = 60_000;

/** Stops with the test. Its files are removed. */
export async function startRegistry(
  t: Pick<TestContext, "after">,
  facts: RegistryFacts = {},
): Promise<TestRegistry> {
  const directory = await temporaryDirectory(t);
  if (facts.tls) makeCertificate(directory);
  if (facts.password !== undefined) {
    const entry = execFileSync("htpasswd", ["-Bbn", "user", facts.password]);
    await writeFile(join(directory, "htpasswd"), entry);
  }
  let process: ChildProcess | undefined;
  let port = facts.port ?? 0;
  const kill = async (): Promise<void> => {
    if (!process || process.exitCode !== null || process.signalCode !== null) return;
    const gone = once(process, "exit");
    process.kill("SIGKILL");
    await gone;
  };
  const start = async (): Promise<void> => {
    await writeFile(join(directory, "config.yml"), configOf(directory, facts, port));
    process = spawn(
      existsSync(extracted) ? extracted : "docker-registry",
      ["serve", join(directory, "config.yml")],
      {
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    port = await listening(process);
  };
  t.after(kill);
  await mkdir(join(directory, "data"));
  await start();
  return {
    address: `${facts.tls ? "localhost" : "127.0.0.1"}:${port}`,
    directory,
    caFile: join(directory, "ca.pem"),
    kill,
    start,
  };
}

/** The port, which the registry writes to its log when it listens. */
async function listening(process: ChildProcess): Promise<number> {
  const { stderr } = process;
  if (!stderr) throw new Error("The registry has no log");
  const lines = createInterface({ input: stderr });
  const port = new Promise<number>((resolve, reject) => {
    let last = "";
    lines.on("line", (line) => {
      last = line;
      const [, found] = /listening on [^ ]*:(\d+)/.exec(line) ?? [];
      if (found !== undefined) resolve(Number(found));
    });
    process.once("error", reject);
    process.once("exit", () => reject(new Error(`The registry exited: ${last}`)));
    setTimeout(() => reject(new Error(`The registry does not listen: ${last}`)), startMs).unref();
  });
  return await port;
}

function configOf(directory: string, { password, tls }: RegistryFacts, port: number): string {
  return [
    "version: 0.1",
    "log: {level: info}",
    "storage:",
    `  filesystem: {rootdirectory: ${join(directory, "data")}}`,
    "  delete: {enabled: true}",
    "http:",
    `  addr: 127.0.0.1:${port}`,
    "  secret: of-a-test",
    ...(tls
      ? [
          "  tls:",
          `    certificate: ${join(directory, "leaf.pem")}`,
          `    key: ${join(directory, "leaf.key")}`,
        ]
      : []),
    ...(password === undefined
      ? []
      : ["auth:", `  htpasswd: {realm: test, path: ${join(directory, "htpasswd")}}`]),
    "",
  ].join("\n");
}

function makeCertificate(directory: string): void {
  const openssl = (...args: string[]) => execFileSync("openssl", args, { cwd: directory, stdio: "pipe" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  openssl("req", "-x509", ...key, "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem");
  openssl(
    ...[
      "req",
      "-x509",
      ...key,
      "-subj",
      "/CN=localhost",
      "-addext",
      "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ],
    ...["-addext", "basicConstraints=CA:FALSE"],
    ...["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "leaf.key", "-out", "leaf.pem"],
  );
}
