/** Everything that files in deploy/ refer to exists. These checks need no container engine. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { settingTable } from "@forkd/daemon";
import { parseAllDocuments } from "yaml";
import { repository } from "../support/places.ts";

const run = promisify(execFile);
const read = (path: string) => readFile(join(repository, path), "utf8");
const yamlFiles = ["docker/compose.yaml", "docker/compose.kvm.yaml", "kubernetes/forkd.yaml"];
const shellFiles = ["supervise/forkd-run", "docker/healthy", "runit/run", "openrc/forkd"];

type Named = { name: string };
/** The fields of Kubernetes objects that the tests read. */
type Part = {
  kind: string;
  spec: {
    selector?: object;
    podSelector?: { matchLabels: object };
    volumeClaimTemplates?: { metadata: Named }[];
    template?: {
      metadata: { labels: object };
      spec: {
        volumes: Named[];
        containers: {
          volumeMounts: Named[];
          securityContext: { privileged: boolean };
          livenessProbe: { periodSeconds: number; failureThreshold: number };
        }[];
      };
    };
  };
};

/** Instructions of the Dockerfile, each on one line. */
async function dockerLines(): Promise<string[]> {
  const text = (await read("deploy/docker/Dockerfile")).replaceAll(/^#.*\n/gm, "");
  return text.replaceAll("\\\n", " ").split("\n");
}

test("the image copies files that exist", async () => {
  const copies = (await dockerLines()).filter(
    (line) => line.startsWith("COPY ") && !line.includes("--from="),
  );
  assert.ok(copies.length > 5);
  for (const line of copies)
    for (const source of line.split(/\s+/).slice(1, -1)) await access(join(repository, source));
});

test("the image installs packages that Debian has", async () => {
  const installs = (await dockerLines()).filter((line) => line.includes("apt-get install"));
  const names = installs.flatMap((line) =>
    (/apt-get install ([^&]*)/.exec(line)?.[1] ?? "")
      .split(/\s+/)
      .filter((word) => /^[a-z0-9][a-z0-9.+-]+$/.test(word)),
  );
  assert.ok(names.includes("qemu-system-x86"));
  const { stdout } = await run("apt-cache", ["policy", ...names]);
  for (const name of names)
    assert.match(stdout, new RegExp(`^${name.replaceAll("+", "\\+")}:\n.*\n +Candidate: \\d`, "m"), name);
});

test("the image installs every package that tools/setup installs", async () => {
  const setup = await read("tools/setup");
  const needs =
    /^needs="([^"]*)"/m
      .exec(setup)?.[1]
      ?.split(/\s+/)
      .map((need) => need.split(":")[1] ?? "") ?? [];
  const installed = (await dockerLines()).filter((line) => line.includes("apt-get install")).join(" ");
  for (const name of needs) assert.match(installed, new RegExp(`(^|\\s)${name}(\\s|$)`), name);
});

test("every variable that deploy/ sets is a setting", async () => {
  const own = /^FORKD_(RUN_\w+|COMMAND)$/;
  const files = [
    "docker/Dockerfile",
    ...yamlFiles,
    ...shellFiles,
    "systemd/forkd.service",
    "systemd/forkd-user.service",
    "systemd/forkd-machines.service",
  ];
  for (const file of files) {
    for (const [name] of (await read(`deploy/${file}`)).matchAll(/\bFORKD_[A-Z_]+\b/g)) {
      const setting = name.slice("FORKD_".length).toLowerCase();
      assert.ok(own.test(name) || Object.hasOwn(settingTable, setting), `${file}: ${name}`);
    }
  }
});

test("the YAML files are valid, and the Kubernetes objects refer to each other", async () => {
  for (const file of yamlFiles) {
    for (const document of parseAllDocuments(await read(`deploy/${file}`))) {
      assert.deepEqual([...document.errors, ...document.warnings], [], file);
    }
  }
  const parts = parseAllDocuments(await read("deploy/kubernetes/forkd.yaml"))
    .map((document) => document.toJS() as Part | null)
    .filter((part) => part !== null);
  assert.deepEqual(
    parts.map(({ kind }) => kind).sort(),
    ["NetworkPolicy", "Service", "StatefulSet"],
    "there is no Secret",
  );
  const find = (kind: string) => parts.find((part) => part.kind === kind)?.spec ?? assert.fail(kind);
  const { template, volumeClaimTemplates = [] } = find("StatefulSet");
  const [container] = template?.spec.containers ?? [];
  assert.ok(template && container);
  assert.deepEqual(find("Service").selector, template.metadata.labels);
  assert.deepEqual(find("NetworkPolicy").podSelector?.matchLabels, template.metadata.labels);
  const volumes = [...template.spec.volumes, ...volumeClaimTemplates.map(({ metadata }) => metadata)];
  for (const { name } of container.volumeMounts)
    assert.ok(
      volumes.some((volume) => volume.name === name),
      name,
    );
  assert.equal(container.securityContext.privileged, false);
  const { periodSeconds, failureThreshold } = container.livenessProbe;
  assert.ok(periodSeconds * failureThreshold >= 300, "a slow daemon is not restarted");
});

test("shell scripts are plain sh, and the logrotate script reads the pid from the daemon's record", async () => {
  for (const file of shellFiles) await run("dash", ["-n", join(repository, "deploy", file)]);
  // Runs the expression of the postrotate script on a record like the daemon's.
  const script = /pid=\$\((sed .*?) \/var/.exec(await read("deploy/logrotate/forkd"))?.[1];
  assert.ok(script);
  const record = JSON.stringify({ pid: 4711, start_time: 1 }, undefined, 2);
  const { stdout } = await run("sh", ["-c", `printf '%s\n' '${record}' | ${script}`]);
  assert.equal(stdout, "4711\n");
});
