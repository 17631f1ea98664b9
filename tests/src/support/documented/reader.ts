/** Acts as a reader who types the commands of a page into one shell, on a host where no daemon runs yet. */
import assert from "node:assert/strict";
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { isErrno, runProgram, Scope } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import { linkSnapshot, linkSnapshots, ownFile, ownImages } from "../data-dir.ts";
import { noteDataDir } from "../orphans.ts";
import { cliPath, repository } from "../places.ts";
import { until } from "@forkd/test-support";
import { testDir } from "../test-dir.ts";
import type { Step } from "./blocks.ts";
import { assertLooksLike, difference } from "./shape.ts";

const stepTimeoutMs = 180_000;
/** The port in the documentation, which may be in use on this host. */
const documentedPort = /\b8889\b/g;

type Said = { out: () => string; err: () => string };

export class Reader implements AsyncDisposable {
  readonly #scope: Scope;
  readonly #shell: ChildProcessWithoutNullStreams;
  readonly #answers: AsyncIterator<string>;
  readonly #dir: string;
  readonly #port: number;
  readonly env: NodeJS.ProcessEnv;
  readonly dataDir: string;
  /** where the shell starts */
  readonly workDir: string;
  #count = 0;

  private constructor(
    scope: Scope,
    place: { dir: string; dataDir: string; port: number; env: NodeJS.ProcessEnv },
  ) {
    this.#dir = place.dir;
    this.workDir = join(place.dir, "tree");
    this.#port = place.port;
    this.dataDir = place.dataDir;
    this.env = place.env;
    this.#shell = spawn("bash", ["--norc", "--noprofile"], {
      cwd: this.workDir,
      env: place.env,
      detached: true,
    });
    const ended = once(this.#shell, "exit");
    scope.defer(async () => {
      this.#shell.stdin.end();
      await ended;
    });
    this.#answers = createInterface({ input: this.#shell.stdout })[Symbol.asyncIterator]();
    this.#shell.stdin.write("set -E -o pipefail; trap 'failed=${failed:-$?}' ERR; exec 3>&1\n");
    this.#scope = scope.keep();
  }

  /** `snapshots`: the tags that the pages use, and the shared snapshot for each. */
  static async open(snapshots: Readonly<Record<string, string>>): Promise<Reader> {
    await using scope = new Scope();
    const { path: dir } = scope.use(await testDir());
    const dataDir = join(dir, "data");
    noteDataDir(dataDir);
    await linkSnapshots(dataDir, []);
    // The pages remove images that no snapshot uses.
    await ownImages(dataDir);
    for (const [tag, baked] of Object.entries(snapshots)) {
      await linkSnapshot(dataDir, baked, tag);
      // Other test files link the shared one meanwhile, which changes its ctime, and tar takes that for a change.
      await ownFile(dataDir, tag, "memory");
    }
    const port = await freePort();
    const settings = { listen: `127.0.0.1:${port}`, pool_memory_percent: 2 };
    writeFileSync(join(dataDir, "config.json"), JSON.stringify(settings));
    for (const name of ["tree", "bin", "home"]) mkdirSync(join(dir, name));
    for (const name of ["forkd", "recipes", "node_modules"])
      symlinkSync(join(repository, name), join(dir, "tree", name));
    symlinkSync(join(repository, "forkd"), join(dir, "bin/forkd"));
    const env: NodeJS.ProcessEnv = {
      PATH: `${join(dir, "bin")}:${process.env["PATH"] ?? ""}`,
      HOME: join(dir, "home"),
      LANG: "C.UTF-8",
      FORKD_DATA_DIR: dataDir,
      FORKD_RUNTIME_DIR: join(dir, "run"),
    };
    scope.defer(() => stopEverything(env));
    return new Reader(scope, { dir, dataDir, port, env });
  }

  /** Runs a command and compares exit code and output with the page. */
  async follow(step: Step): Promise<void> {
    const name = join(this.#dir, String(this.#count++));
    writeFileSync(`${name}.sh`, `${step.text.replaceAll(documentedPort, String(this.#port))}\n`);
    for (const stream of ["out", "err"]) writeFileSync(`${name}.${stream}`, "");
    const source = `source ${name}.sh >${name}.out 2>${name}.err </dev/null 3>&-`;
    const said: Said = {
      out: () => readFileSync(`${name}.out`, "utf8").replaceAll(String(this.#port), "8889"),
      err: () => readFileSync(`${name}.err`, "utf8"),
    };
    if (step.endless) return this.#interrupt(step, source, said);
    const status = await this.#ask(`failed=; ${source}; status=$?; echo "\${failed:-$status}" >&3`);
    assert.equal(
      Number(status),
      step.exit,
      `${step.at}: ${step.text}\nexited with ${status}\n${said.out()}${said.err()}`,
    );
    if (step.printed !== undefined) assertLooksLike(said.out(), step.printed, step.at);
  }

  /** Runs the command until it has printed what the page shows, causes events, then sends Ctrl-C. */
  async #interrupt(step: Step, source: string, said: Said): Promise<void> {
    const pid = Number(await this.#ask(`set -m; ${source} & echo $! >&3; set +m`));
    const { printed } = step;
    const enough = () =>
      printed === undefined ? said.out() + said.err() !== "" : difference(said.out(), printed) === undefined;
    const within = (ms: number) =>
      until(step.text, enough, ms).then(
        () => true,
        () => false,
      );
    try {
      // The shell loses a signal that arrives while it starts the program.
      await until(`${step.text} has started`, () => runsProgram(pid) || said.err() !== "");
      for (let tries = 0; !(await within(tries === 0 ? 500 : 2000)); tries++) {
        if (tries === 8) assertLooksLike(said.out(), printed ?? "something", step.at);
        await this.#causeEvents();
      }
    } finally {
      signalGroup(pid, "SIGINT");
    }
    const status = Number(await this.#ask(`failed=; wait ${pid}; echo $? >&3`));
    assert.ok(
      [0, 130].includes(status),
      `${step.at}: ${step.text}\nexited with ${status} after Ctrl-C\n${said.err()}`,
    );
  }

  /** Forks a sandbox, kills its VMM and removes it, if a daemon runs. */
  async #causeEvents(): Promise<void> {
    const socket = join(this.#dir, "run/forkd.sock");
    if (!existsSync(socket)) return;
    const forkd = await connect({ socket });
    const [any] = await forkd.snapshots.list({ limit: 1 }).all();
    if (any === undefined) return;
    const sandbox = await forkd.create(any.tag, { labels: { job: "42" } });
    const { pid } = sandbox.info;
    assert.ok(pid !== undefined);
    process.kill(pid, "SIGKILL");
    await until(
      "the sandbox is reported dead",
      async () => (await forkd.sandboxes.get(sandbox.id)).info.state === "dead",
    );
    await sandbox.kill();
  }

  async #ask(command: string): Promise<string> {
    this.#shell.stdin.write(`${command}\n`);
    const slow = setTimeout(() => signalGroup(this.#shell.pid, "SIGKILL"), stepTimeoutMs);
    const { value, done } = await this.#answers.next();
    clearTimeout(slow);
    assert.ok(done !== true, `the shell has exited; a command may take at most ${stepTimeoutMs} ms`);
    return value;
  }

  /** Requests in the audit log. */
  requests(): { route: string; status: number; user_agent?: string }[] {
    const lines = readFileSync(join(this.dataDir, "audit.jsonl"), "utf8").trimEnd().split("\n");
    return lines
      .map(
        (line) => JSON.parse(line) as { event: string; route: string; status: number; user_agent?: string },
      )
      .filter(({ event }) => event === "request");
  }

  /** Stops the daemon, so that the audit log is complete. */
  async finish(): Promise<void> {
    await stopEverything(this.env);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#scope[Symbol.asyncDispose]();
  }
}

/** Stops the daemon and all sandboxes, including those of a daemon that was killed. */
async function stopEverything(env: NodeJS.ProcessEnv): Promise<void> {
  await runProgram(process.execPath, [cliPath, "up", "-q"], { env });
  await runProgram(process.execPath, [cliPath, "kill", "--all", "-q"], { env });
  await runProgram(process.execPath, [cliPath, "down", "--stop", "-q"], { env });
}

/** Whether another program than a shell runs in the group of the shell `leader`. */
function runsProgram(leader: number): boolean {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.some((pid) => {
    try {
      // The name, which may contain anything, then state, parent, group.
      const [, name, , , group] =
        /^\d+ \((.*)\) (\S+) (\S+) (\S+)/s.exec(readFileSync(`/proc/${pid}/stat`, "latin1")) ?? [];
      return Number(group) === leader && name !== "bash";
    } catch (error) {
      // It has ended.
      if (isErrno(error, "ENOENT", "ESRCH")) return false;
      throw error;
    }
  });
}

/** Ignores a process that has already exited; its exit code shows that. */
function signalGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  assert.ok(address !== null && typeof address === "object");
  return address.port;
}
