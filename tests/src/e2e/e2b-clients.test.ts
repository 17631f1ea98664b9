/** E2B's API around the control plane: Python's client, the CLI, and a daemon that restarts. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Sandbox } from "e2b";
import { endDaemon, startDaemon, withDaemons } from "../support/daemon.ts";
import { e2bAccess, startE2bDaemon } from "../support/e2b.ts";
import { cliPath, repository } from "../support/places.ts";
import { pythonPackages } from "../support/python-packages.ts";

const run = promisify(execFile);
const runMs = 120_000;

test("`forkd e2b env` is all that Python's client needs", async () => {
  await using daemon = await startE2bDaemon();
  const packages = await pythonPackages(["e2b==2.45.1", "e2b-code-interpreter==2.9.1"]);
  const env = { ...daemon.env, PYTHONPATH: packages, PYTHONDONTWRITEBYTECODE: "1" };
  const script = 'eval "$("$1" "$2" e2b env)" && exec python3 "$3"';
  const smoke = join(repository, "tests/python/e2b_smoke.py");
  const args = ["-c", script, "sh", process.execPath, cliPath, smoke];
  const { stdout } = await run("/bin/sh", args, { env, timeout: runMs });
  assert.equal(stdout, "ok\n");
  const left = await Sandbox.list(daemon.options).nextItems();
  assert.deepEqual(left, []);
});

test("`forkd e2b env` uses the key that it is given, and says what is missing", async () => {
  await using daemon = await startE2bDaemon();
  const forkd = (env: Record<string, string>) =>
    run(process.execPath, [cliPath, "e2b", "env", "--json"], { env: { ...daemon.env, ...env } });
  const { stdout } = await forkd({});
  assert.deepEqual(JSON.parse(stdout), daemon.variables);
  const given = JSON.parse(
    (await forkd({ FORKD_URL: daemon.url, FORKD_TOKEN: daemon.token })).stdout,
  ) as object;
  assert.deepEqual(given, daemon.variables);
  await using deaf = await startDaemon({});
  await assert.rejects(
    run(process.execPath, [cliPath, "e2b", "env"], { env: deaf.env }),
    /the daemon does not listen on TCP[\s\S]*FORKD_LISTEN/,
  );
});

test("a restarted daemon keeps tokens, metadata and names of templates", async () => {
  await withDaemons(["python"], async (start) => {
    const env = { FORKD_LISTEN: "127.0.0.1:0", FORKD_ON_STOP: "keep", FORKD_E2B_TEMPLATES: "base=python" };
    const first = await start(env);
    const before = await e2bAccess(first);
    const metadata = { any: "text with spaces" };
    const sandbox = await Sandbox.create({ ...before.options, metadata });
    await sandbox.files.write("/root/kept", "kept");
    const snapshot = await sandbox.createSnapshot({ name: "named" });
    const signed = await sandbox.downloadUrl("/root/kept");
    const ended = await Sandbox.create(before.options);
    await endDaemon(first, "SIGKILL");

    const second = await start(env);
    const { options, url } = await e2bAccess(second);
    const again = await Sandbox.connect(sandbox.sandboxId, options);
    assert.deepEqual((await again.getInfo()).metadata, metadata);
    assert.equal(await again.files.read("/root/kept"), "kept");
    const answer = await fetch(signed.replace(before.url, url));
    assert.equal(await answer.text(), "kept");
    const child = await Sandbox.create("named", options);
    assert.equal(await child.files.read("/root/kept"), "kept");
    for (const { sandboxId } of [child, again, ended])
      assert.equal(await Sandbox.kill(sandboxId, options), true);
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, options), true);
    const build = `/templates/none/builds/00000000-0000-4000-8000-000000000000/status`;
    const status = await fetch(url + build, { headers: { "x-api-key": options.apiKey } });
    assert.equal(((await status.json()) as { status: string }).status, "error");
  });
});
