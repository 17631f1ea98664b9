/** Operation: the systemd units, the supervisor, the background daemon, and the doctor with a real boot. */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { access, readdir, readFile, rename, writeFile } from "node:fs/promises";
import http from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { promisify } from "node:util";
import { Scope } from "@forkd/base";
import { startDaemon } from "../support/daemon.ts";
import { linkSnapshots } from "../support/data-dir.ts";
import "../support/orphans.ts";
import { cliPath, repository } from "../support/places.ts";
import { until } from "@forkd/test-support";
import { testDir } from "../support/test-dir.ts";

const run = promisify(execFile);
const deploy = join(repository, "deploy");
const supervisor = join(deploy, "supervise/forkd-run");

function health(socketPath: string): Promise<number> {
  return new Promise((resolve, reject) => {
    http
      .get({ socketPath, path: "/healthz" }, (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      })
      .once("error", reject);
  });
}

/** Returns a function that reads lines until one matches. */
function linesOf(stream: NodeJS.ReadableStream): (wanted: RegExp) => Promise<RegExpExecArray> {
  const lines = createInterface({ input: stream })[Symbol.asyncIterator]();
  return async (wanted) => {
    for (;;) {
      const { value, done } = await lines.next();
      assert.ok(!done, `the output ended before ${String(wanted)}`);
      const match = wanted.exec(value);
      if (match) return match;
    }
  };
}

function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return once(child, "exit").then(([code]) => code as number | null);
}

function endWith(scope: Scope, child: ChildProcess): void {
  scope.defer(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await ended(child);
  });
}

/** Settings of a daemon that writes to one directory only. */
async function place(scope: Scope): Promise<{ dir: string; socket: string; env: Record<string, string> }> {
  const { path: dir } = scope.use(await testDir());
  await linkSnapshots(join(dir, "data"), []);
  const env = {
    PATH: process.env["PATH"] ?? "",
    FORKD_DATA_DIR: join(dir, "data"),
    FORKD_RUNTIME_DIR: join(dir, "run"),
    FORKD_LISTEN: "off",
    FORKD_POOL_MEMORY_PERCENT: "0",
    FORKD_ACCELERATOR: "tcg",
  };
  return { dir, socket: join(dir, "run/forkd.sock"), env };
}

test("systemd accepts the units, and the commands of the unit start, reload and stop the daemon", async () => {
  await using scope = new Scope();
  const { dir, socket, env } = await place(scope);
  for (const user of [false, true]) {
    const options = user ? ["--user"] : [];
    await run(process.execPath, [
      cliPath,
      "service",
      "install",
      "--dir",
      join(dir, `unit${user}`),
      ...options,
    ]);
    const units = ["forkd.service", "forkd-machines.service"].map((name) => join(dir, `unit${user}`, name));
    const verify = ["verify", ...options, ...units];
    const { stderr } = await run("systemd-analyze", verify, {
      env: { ...process.env, XDG_RUNTIME_DIR: dir },
    });
    assert.equal(stderr, "");
  }
  const unit = await readFile(join(dir, "unitfalse/forkd.service"), "utf8");
  const [program = "", ...args] = /^ExecStart=(.*)$/m.exec(unit)?.[1]?.split(" ") ?? [];
  assert.equal(/^ExecReload=(.*)$/m.exec(unit)?.[1], "/bin/kill -HUP $MAINPID");
  assert.equal(/^KillMode=(.*)$/m.exec(unit)?.[1], "process");
  const names = [...unit.matchAll(/^Environment=.*$/gm)].flatMap(([line]) =>
    [...line.matchAll(/(FORKD_\w+)=/g)].map(([, name]) => name),
  );
  assert.deepEqual(names, ["FORKD_DATA_DIR", "FORKD_RUNTIME_DIR", "FORKD_MACHINES_CGROUP"]);

  const logFile = join(dir, "log", "daemon.log");
  const child = spawn(program, args, {
    env: { ...env, FORKD_LOG_FILE: logFile },
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    cwd: "/",
  });
  endWith(scope, child);
  await once(child, "message");
  assert.equal(await health(socket), 200);
  await rename(logFile, `${logFile}.old`);
  child.kill("SIGHUP");
  await until("the log is opened again", () => existsSync(logFile));
  assert.match(await readFile(`${logFile}.old`, "utf8"), /"daemon\.start"/);

  // ExecStop checks whether the whole system stops. Only then does it stop the sandboxes and the daemon.
  const stop = /^ExecStop=\/bin\/sh -c '(.*)'$/m.exec(unit)?.[1]?.replaceAll("$$", "$");
  assert.ok(stop);
  const stopWhile = async (state: string) => {
    await writeFile(join(dir, "systemctl"), `#!/bin/sh\necho ${state}\n`, { mode: 0o755 });
    await run("/bin/sh", ["-c", stop], { env: { ...env, PATH: `${dir}:${env["PATH"]}` } });
  };
  await stopWhile("running");
  assert.equal(await health(socket), 200);
  await stopWhile("stopping");
  assert.equal(await ended(child), 0);
  assert.match(await readFile(logFile, "utf8"), /"daemon\.hangup"[^]*"daemon\.stop","outcome":"ok"/);
});

test("the supervisor restarts a killed daemon, and both exit on SIGTERM", async () => {
  await using scope = new Scope();
  const { dir, socket, env } = await place(scope);
  const pidfile = join(dir, "run.pid");
  const child = spawn(supervisor, ["--log-level", "info"], {
    env: { ...env, FORKD_RUN_PIDFILE: pidfile },
    stdio: ["ignore", "ignore", "pipe"],
  });
  endWith(scope, child);
  const line = linesOf(child.stderr);
  const started = async () => {
    const pid = Number((await line(/started the daemon \(pid (\d+)\)/))[1]);
    await line(/"daemon\.start"/);
    return pid;
  };
  const first = await started();
  assert.equal(await readFile(pidfile, "utf8"), `${child.pid}\n`);
  const second = spawn(supervisor, { env: { ...env, FORKD_RUN_PIDFILE: pidfile }, stdio: "ignore" });
  assert.equal(await ended(second), 4, "only one supervisor per pid file");
  process.kill(first, "SIGKILL");
  await line(/exited with code 137; restarting it in 1 s/);
  const next = await started();
  assert.notEqual(next, first);
  assert.equal(await health(socket), 200);
  child.kill("SIGHUP");
  await line(/"daemon\.hangup"/);
  child.kill("SIGTERM");
  await line(/the daemon exited with code 0/);
  assert.equal(await ended(child), 0);
  await assert.rejects(health(socket));
  await assert.rejects(access(pidfile), { code: "ENOENT" });
});

test("the supervisor backs off when the daemon cannot start, and SIGTERM ends the wait", async () => {
  await using scope = new Scope();
  const { path: dir } = scope.use(await testDir());
  const command = join(dir, "forkd");
  await writeFile(command, "#!/bin/sh\nexit 8\n", { mode: 0o755 });
  const env = { PATH: process.env["PATH"], FORKD_COMMAND: command, FORKD_RUN_MAX_BACKOFF: "2" };
  const child = spawn(supervisor, { env, stdio: ["ignore", "ignore", "pipe"] });
  endWith(scope, child);
  const line = linesOf(child.stderr);
  for (const seconds of [1, 2, 2]) await line(new RegExp(`code 8; restarting it in ${seconds} s`));
  child.kill("SIGTERM");
  assert.equal(await ended(child), 0);
});

test("`up` starts a daemon that outlives its shell and writes a log; `logs --daemon` reads it", async () => {
  await using scope = new Scope();
  const { dir, socket, env } = await place(scope);
  // The shell has its own session and has exited when the test looks at the daemon.
  const { stdout } = await run("setsid", ["sh", "-c", `"${process.execPath}" "${cliPath}" up --json`], {
    env,
  });
  scope.defer(async () => void (await run(process.execPath, [cliPath, "down", "--stop"], { env })));
  const { pid } = JSON.parse(stdout) as { pid: number };
  const session = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1]?.split(" ")[3];
  assert.equal(Number(session), pid, "the daemon has its own session");
  process.kill(pid, "SIGHUP");
  assert.equal(await health(socket), 200);
  await run(join(deploy, "docker/healthy"), { env });
  await assert.rejects(run(join(deploy, "docker/healthy"), { env: { ...env, FORKD_RUNTIME_DIR: dir } }), {
    code: 1,
  });
  const log = await run(process.execPath, [cliPath, "logs", "--daemon"], { env });
  assert.match(log.stdout, / INFO +daemon\.start /);
  assert.deepEqual(
    (await readdir(join(dir, "data"))).filter((name) => name.startsWith("daemon.log")),
    ["daemon.log"],
  );
  const shown = await run(process.execPath, [cliPath, "config", "show", "--json"], { env });
  const { daemon_pid: daemonPid, settings } = JSON.parse(shown.stdout) as {
    daemon_pid: number;
    settings: { name: string; value: unknown; running?: unknown }[];
  };
  assert.equal(daemonPid, pid);
  assert.equal(settings.find(({ name }) => name === "log_file")?.running, join(dir, "data/daemon.log"));
});

test("`up` reports why the daemon cannot start, also when the log goes to another file", async () => {
  await using scope = new Scope();
  const { dir, env } = await place(scope);
  const failing = { ...env, FORKD_QEMU_PATH: join(dir, "no-qemu"), FORKD_LOG_FILE: join(dir, "other.log") };
  await assert.rejects(run(process.execPath, [cliPath, "up", "--json"], { env: failing }), (error) => {
    const { code, stderr } = error as unknown as { code: number; stderr: string };
    assert.equal(code, 8);
    const body = JSON.parse(stderr) as { code: string; error: string };
    assert.equal(body.code, "host_not_ready");
    assert.match(body.error, /no-qemu/);
    return true;
  });
  assert.match(await readFile(join(dir, "other.log"), "utf8"), /"daemon\.stop","outcome":"failed"/);
});

test("doctor boots a real guest when a daemon runs, and works without a daemon", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"], env: { FORKD_ACCELERATOR: "tcg" } });
  type Report = {
    ok: boolean;
    daemon: { pid: number } | null;
    checks: { name: string; outcome: string; detail: string }[];
  };
  const doctor = async (...args: string[]) =>
    JSON.parse(
      (await run(process.execPath, [cliPath, "doctor", "--json", ...args], { env: daemon.env })).stdout,
    ) as Report;
  const report = await doctor();
  const find = (name: string) => report.checks.find((check) => check.name === name);
  assert.equal(report.daemon?.pid, daemon.process.pid);
  assert.match(find("emulation")?.detail ?? "", /^a guest ran under TCG/);
  assert.equal(find("versions")?.outcome, "ok");
  assert.equal(find("snapshots")?.detail, "1 with all their files");
  assert.equal(find("leftovers")?.outcome, "ok", "the guest that doctor booted is not a leftover");
  assert.deepEqual(await readdir(join(daemon.dataDir, "sandboxes")), []);
  daemon.process.kill("SIGTERM");
  await ended(daemon.process);
  const idle = await doctor("--no-boot", "--fix");
  assert.equal(idle.daemon, null);
  assert.equal(idle.ok, true);
});

test("FORKD_NICE changes the priority of the daemon only", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"], env: { FORKD_NICE: "-5" } });
  const child = await daemon.forkd.create("tiny");
  const niceOf = async (path: string): Promise<number> => {
    const afterName = (await readFile(path, "latin1")).split(") ").at(-1)?.split(" ") ?? [];
    return Number(afterName[16]);
  };
  const tasks = `/proc/${child.info.pid}/task`;
  const threads = await Promise.all((await readdir(tasks)).map((tid) => niceOf(`${tasks}/${tid}/stat`)));
  assert.ok(threads.length > 1, "a machine has a thread for its CPU");
  assert.deepEqual([...new Set(threads)], [await niceOf("/proc/self/stat")]);
  const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(await readFile("/proc/self/status", "latin1"))?.[1];
  const sysNice = 23n;
  const allowed = (BigInt(`0x${capabilities}`) >> sysNice) % 2n === 1n;
  assert.equal(await niceOf(`/proc/${daemon.process.pid}/stat`), allowed ? -5 : 0);
});
