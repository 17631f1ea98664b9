/**
 * Installs packages inside a sandbox with the presets of the package registries: apt and pip, through the proxy.
 * It needs the registries and takes minutes under emulation, so it is not part of the tests.
 */
import "./support/orphans.ts";
import assert from "node:assert/strict";
import { startDaemon } from "./support/daemon.ts";

await using daemon = await startDaemon({ snapshots: ["python"] });
const rules = ["allow preset:debian", "allow preset:pypi"];
const sandbox = await daemon.forkd.create("python", { network: { rules } });
const steps: [command: string, expected: RegExp][] = [
  ["apt-get update -q 2>&1 | tail -2", /Reading package lists/],
  ["apt-get install -y -q --no-install-recommends hello 2>&1 | tail -1; hello", /Hello, world!/],
  ["apt-get install -y -q --no-install-recommends python3-pip 2>&1 | tail -1; pip --version", /^pip /m],
  [
    "pip install --break-system-packages six 2>&1 | tail -1; python3 -c 'import six; print(six.__name__)'",
    /^six$/m,
  ],
];
for (const [command, expected] of steps) {
  const startedAt = performance.now();
  const { stdout } = await sandbox.commands.run(
    ["sh", "-c", `export DEBIAN_FRONTEND=noninteractive; ${command}`],
    {
      timeoutMs: 1_200_000,
    },
  );
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  process.stdout.write(`$ ${command}\n${stdout.trimEnd()}\n(${seconds} s)\n`);
  assert.match(stdout, expected);
}
const { counters } = await sandbox.network.info();
process.stdout.write(`${JSON.stringify(counters)}\n`);
const refused = await sandbox.commands.run([
  "sh",
  "-c",
  "python3 -c 'import urllib.request as u; u.urlopen(\"http://example.com\", timeout=30)' 2>&1 | tail -1",
]);
assert.match(refused.stdout, /Error/);
