/** Renders and writes the systemd units of a tree from the templates in deploy/systemd. */
import { constants } from "node:fs";
import { access, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { advice, AppError } from "@forkd/contract/wire";

const ownRoot = fileURLToPath(new URL("../../../../../", import.meta.url)).replace(/\/$/, "");
const mainOf = (prefix: string) => join(prefix, "packages/cli/dist/src/main.js");

/** The paths in the templates. */
const templateRoot = "/opt/forkd";
const templateNode = "/usr/bin/node";
/** Other characters would need quoting, which differs between ExecStart and Documentation. */
const plainPath = /^\/[A-Za-z0-9/._@+-]*$/;

/** The unit of the daemon, and the unit with the control groups of its machines. */
export const unitNames = ["forkd.service", "forkd-machines.service"] as const;
export type UnitName = (typeof unitNames)[number];

type UnitOptions = {
  /** Tree to run; default: the tree of this program. */
  readonly prefix?: string | undefined;
  readonly user: boolean;
};

export async function renderUnit(name: UnitName, { prefix = ownRoot, user }: UnitOptions): Promise<string> {
  const root = resolve(prefix);
  for (const [field, path] of [
    ["prefix", root],
    ["node", process.execPath],
  ] as const) {
    if (plainPath.test(path)) continue;
    throw new AppError("invalid_request", `Cannot write a unit with the ${field} "${path}"`, {
      details: { field },
      remedy: advice("Use a path of letters, digits and . _ @ + - only, such as /opt/forkd."),
    });
  }
  try {
    await access(mainOf(root), constants.R_OK);
  } catch (cause) {
    throw new AppError("file_not_found", `There is no built forkd at ${root}: ${mainOf(root)} is missing`, {
      details: { field: "prefix" },
      remedy: advice("Run `npm run setup` there, or give --prefix."),
      cause,
    });
  }
  const file = name === "forkd.service" && user ? "forkd-user.service" : name;
  const template = await readFile(join(ownRoot, "deploy/systemd", file), "utf8");
  return template.replaceAll(templateNode, process.execPath).replaceAll(templateRoot, root);
}

export function unitPath(
  name: UnitName,
  { user, dir }: { user: boolean; dir?: string | undefined },
  env: NodeJS.ProcessEnv,
): string {
  const config = env["XDG_CONFIG_HOME"] || join(env["HOME"] || homedir(), ".config");
  return join(resolve(dir ?? (user ? join(config, "systemd/user") : "/etc/systemd/system")), name);
}

/** False if the file already has this text. */
export async function needsWrite(path: string, text: string): Promise<boolean> {
  return (await readFile(path, "utf8").catch(() => undefined)) !== text;
}

/** Replaces the file in one step. */
export async function writeUnit(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    await writeFile(temporary, text, { mode: 0o644 });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
