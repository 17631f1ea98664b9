/** The steps of a build, run one after the other in a sandbox. */
import { createReadStream } from "node:fs";
import { posix } from "node:path";
import { AppError, forkRequestSchema } from "@forkd/contract";
import { exec, startExec, streamExec, writeFile, type Context, type Runtime } from "@forkd/runtime";
import { z } from "zod";
import { parse } from "../control/parse.ts";
import { LogLines, type BuildLog, type Level } from "./build-log.ts";
import type { Uploads } from "./uploads.ts";

const text = z.string().max(131_072);
export const stepSchema = z.object({
  type: z.enum(["COPY", "RUN", "WORKDIR", "USER", "ENV"]),
  args: z.array(text).max(1000).nullish(),
  filesHash: z.string().max(128).nullish(),
});
export type Step = z.output<typeof stepSchema>;

const userName = /^[a-z_][a-z0-9_-]{0,31}$/i;
const variableName = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
const shortSecs = 60;
const envSchema = z.object({ ENV: forkRequestSchema.shape.env });

/** What later steps and the sandboxes of the template inherit. */
export type Settings = {
  env: Record<string, string>;
  user: string | undefined;
  workdir: string | undefined;
};

export type Workshop = {
  readonly runtime: Runtime;
  /** of the sandbox */
  readonly id: string;
  readonly context: Context;
  readonly uploads: Uploads;
  readonly log: BuildLog;
  readonly settings: Settings;
};

export async function runStep(shop: Workshop, step: Step, number: string): Promise<void> {
  const args = step.args ?? [];
  shop.log.add(`[${number}] ${step.type} ${args.join(" ")}`, { step: number });
  switch (step.type) {
    case "RUN":
      return runCommand(shop, { command: need(step, 0), user: args[1], step: number });
    case "ENV":
      return setVariables(shop, step);
    case "WORKDIR":
      return changeDirectory(shop, need(step, 0));
    case "USER":
      return changeUser(shop, need(step, 0));
    case "COPY":
      return copyFiles(shop, step);
  }
}

function need({ type, args }: Step, at: number): string {
  const value = args?.[at];
  if (value !== undefined && value !== "") return value;
  throw new AppError("invalid_request", `Invalid step: ${type} needs ${at + 1} argument(s)`);
}

type Command = { readonly command: string; readonly user?: string | undefined; readonly step: string };

/** Its output goes to the log. Throws if it fails. */
async function runCommand(shop: Workshop, { command, user, step }: Command): Promise<void> {
  const { runtime, id, context, settings, log } = shop;
  const request = {
    ...requestOf(shop, ["/bin/bash", "-l", "-c", command]),
    user: user === undefined || user === "" ? settings.user : user,
    stream: true,
    // The whole build has a limit.
    timeout_secs: 0,
  };
  const lines = (level: Level) => new LogLines((line) => log.add(line, { level, step }));
  const out = { stdout: lines("info"), stderr: lines("warn") };
  for await (const event of await streamExec(runtime, { ...request, id }, context)) {
    if (event.type === "stdout" || event.type === "stderr")
      out[event.type].push(Buffer.from(event.data, event.encoding).toString("utf8"));
    if (event.type === "error") throw new AppError("engine_failed", event.error);
    if (event.type !== "exit") continue;
    out.stdout.end();
    out.stderr.end();
    if (event.exit_code !== 0)
      throw new AppError(
        "guest_refused",
        `The command "${short(command)}" failed with exit code ${event.exit_code}`,
      );
  }
}

function requestOf({ settings }: Workshop, args: string[]) {
  return {
    args,
    env: settings.env,
    ...(settings.workdir !== undefined && { cwd: settings.workdir }),
    ...(settings.user !== undefined && { user: settings.user }),
    stdin_open: false,
    stream: false,
    background: false,
  };
}

/** A short command of the build itself, as root. Throws if it fails; returns what it printed. */
async function asRoot(shop: Workshop, script: string, args: readonly string[] = []): Promise<string> {
  const { runtime, id, context, settings } = shop;
  const request = {
    id,
    args: ["/bin/sh", "-c", script, "sh", ...args],
    env: settings.env,
    timeout_secs: shortSecs,
    stdin_open: false,
    stream: false,
    background: false,
  };
  const result = await exec(runtime, request, context);
  if (result.exit_code === 0 && !result.timed_out) return result.stdout;
  const why = result.timed_out ? `it took longer than ${shortSecs} s` : result.stderr.trim().slice(0, 500);
  throw new AppError("guest_refused", `The step failed: ${why}`);
}

/** `user` of the template if there is one, as in E2B's own images. */
export async function defaultUser(shop: Workshop): Promise<string | undefined> {
  const found = await asRoot(shop, "id -u user >/dev/null 2>&1 && echo user || true");
  return found.trim() === "user" ? "user" : undefined;
}

/** Values may use variables of earlier steps. */
async function setVariables(shop: Workshop, { args }: Step): Promise<void> {
  const given = args ?? [];
  for (let at = 0; at < given.length; at += 2) {
    const name = given[at] ?? "";
    const value = given[at + 1] ?? "";
    if (!variableName.test(name))
      throw new AppError(
        "invalid_request",
        `Invalid step: ENV: "${short(name)}" is not a name of a variable`,
      );
    const quoted = value.replaceAll(/["\\`]/g, (each) => `\\${each}`);
    shop.settings.env[name] = value.includes("$") ? await asRoot(shop, `printf %s "${quoted}"`) : value;
  }
  // Every sandbox of the template gets them.
  parse(envSchema, { ENV: shop.settings.env });
}

async function changeDirectory(shop: Workshop, given: string): Promise<void> {
  const { settings } = shop;
  const path = posix.resolve(settings.workdir ?? (await homeOf(shop)), given);
  const owner = settings.user ?? "root";
  await asRoot(shop, '[ -d "$1" ] || { mkdir -p "$1" && chown "$2" "$1"; }', [path, owner]);
  settings.workdir = path;
}

async function homeOf(shop: Workshop): Promise<string> {
  const found = await asRoot(shop, 'getent passwd "$1" | cut -d: -f6', [shop.settings.user ?? "root"]);
  return found.trim() || "/";
}

async function changeUser(shop: Workshop, name: string): Promise<void> {
  if (!userName.test(name)) throw new AppError("invalid_request", `Invalid step: USER: "${short(name)}"`);
  await asRoot(shop, 'id -u "$1" >/dev/null 2>&1 || useradd -m -s /bin/bash "$1"', [name]);
  shop.settings.user = name;
}

/**
 * The archive has the paths of the client below the directory of the build. A file gets the name of the target;
 * of a directory, the content moves into the target.
 */
async function copyFiles(shop: Workshop, step: Step): Promise<void> {
  const { runtime, id, context, uploads, settings } = shop;
  const source = need(step, 0);
  const hash = step.filesHash ?? "";
  const archive = await uploads.find(hash);
  if (archive === undefined)
    throw new AppError(
      "invalid_request",
      `Invalid step: COPY: the files of "${short(source)}" were not uploaded`,
    );
  const target = posix.resolve(settings.workdir ?? (await homeOf(shop)), need(step, 1));
  const user = settings.user ?? "root";
  const owner = step.args?.[2] || user;
  const place = `/tmp/.forkd-copy-${hash.slice(0, 16)}`;
  const write = { id, path: `${place}.tar`, mode: "0600", append: false, exclusive: false, in_place: false };
  await writeFile(runtime, { ...write, content: createReadStream(archive) }, context);
  try {
    await asRoot(shop, copyScript, [
      place,
      withoutPatterns(source),
      target,
      owner.includes(":") ? owner : `${owner}:`,
      step.args?.[3] ?? "",
      // Docker's rule for a target that is a directory; E2B's clients write the name of a file in full.
      need(step, 1).endsWith("/") ? "directory" : "",
    ]);
  } finally {
    await asRoot(shop, 'rm -rf "$1" "$1.tar"', [place]);
  }
}

/** Arguments: place of the archive, source in it, target, owner, mode or "", "directory" or "". */
const copyScript = `
set -e
mkdir -p "$1"
tar -xf "$1.tar" -C "$1"
from="$1/$2"
parent=$(dirname "$from")
case "$2" in */|"") parent=\${from%/} ;; esac
if [ -e "$from" ] || [ -L "$from" ]; then one="$from"; else one=""; fi
if [ -n "$one" ] && { [ -L "$one" ] || [ ! -d "$one" ]; }; then
  chown -h "$4" "$one"
  [ -z "$5" ] || [ -L "$one" ] || chmod "$5" "$one"
  [ -z "$6" ] || mkdir -p "$3"
  mkdir -p "$(dirname "$3")"
  mv "$one" "$3"
else
  [ -n "$one" ] || one="$parent"
  chown -hR "$4" "$one"
  [ -z "$5" ] || chmod -R "$5" "$one"
  mkdir -p "$3"
  chown "$4" "$3"
  cp -a "$one/." "$3/"
fi
`;

/** Patterns are resolved by the client; the archive has what they matched. */
export function withoutPatterns(source: string): string {
  const parts = posix
    .normalize(source)
    .replace(/^(?:\.\.?\/)*\/*/, "")
    .split("/");
  const at = parts.findIndex((part) => /[*?[\]{}]/.test(part));
  const kept = (at < 0 ? parts : parts.slice(0, at)).filter((part) => part !== "" && part !== ".");
  return kept.join("/") + (at < 0 ? "" : "/");
}

/** Starts the program that every sandbox of the template has running. */
export async function startProgram(shop: Workshop, command: string): Promise<void> {
  const { runtime, id, context } = shop;
  const request = { ...requestOf(shop, ["/bin/bash", "-l", "-c", command]), id, background: true };
  await startExec(runtime, request, context);
}

/** Whether the command of the template that says so succeeds. */
export async function isReady(shop: Workshop, command: string): Promise<boolean> {
  const { runtime, id, context } = shop;
  const request = { ...requestOf(shop, ["/bin/bash", "-l", "-c", command]), id, timeout_secs: shortSecs };
  const { exit_code: code, timed_out: isLate } = await exec(runtime, request, context);
  return code === 0 && !isLate;
}

function short(value: string): string {
  return value.length > 100 ? `${value.slice(0, 100)}…` : value;
}
