/**
 * The initramfs: the agent as /init, the modules that it loads, its mount points, and files for the guest.
 * See docs/spec/agent-protocol.md, "Boot".
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { encodeCpio, type CpioEntry } from "./cpio.ts";
import { builderVersion, digestOf, sha256 } from "../files/digest.ts";
import { loadOrder, parseModulesDep, wantedModules } from "./modules.ts";
import { requireModules } from "./copy-modules.ts";

type Initramfs = {
  path: string;
  /** SHA-256 of the file */
  digest: string;
  sizeBytes: number;
  /** file names of the modules in load order */
  modules: string[];
};

const infoSchema = z.object({ digest: z.string(), sizeBytes: z.number(), modules: z.array(z.string()) });

const directories = ["dev", "modules", "newroot", "proc", "run", "sys"];

/** A file in the root of the initramfs. */
type ExtraFile = { readonly name: string; readonly content: Uint8Array };

/** The agent looks for the certificates under this name. */
const bundleName = "ca-bundle.pem";

/** The archive; `modules` are in load order. */
function encodeInitramfs(
  agent: Uint8Array,
  modules: readonly { file: string; content: Uint8Array }[],
  files: readonly ExtraFile[],
): Uint8Array {
  const entries: CpioEntry[] = directories.map((path) => ({ path, type: "directory", mode: 0o755 }));
  // The kernel opens this for PID 1 before anything is mounted.
  entries.push({ path: "dev/console", type: "character", mode: 0o600, major: 5, minor: 1 });
  entries.push({ path: "init", type: "file", mode: 0o755, content: agent });
  for (const { file, content } of modules) {
    entries.push({ path: `modules/${file}`, type: "file", mode: 0o644, content });
  }
  const list = modules.map(({ file }) => `${file}\n`).join("");
  entries.push({ path: "modules/load", type: "file", mode: 0o644, content: Buffer.from(list) });
  for (const { name, content } of files) entries.push({ path: name, type: "file", mode: 0o644, content });
  return encodeCpio(entries);
}

/**
 * The initramfs for an agent and a set of modules (`modulesDir` null: the kernel has them built in). It also has
 * `files` and the certificates of the context.
 * It is small and not compressed: compression did not make the boot faster.
 */
export async function ensureInitramfs(
  imageDir: string,
  input: { agentPath: string; modulesDir: string | null; files?: readonly ExtraFile[] },
  context: BuildContext = {},
): Promise<Initramfs> {
  const agent = await readAgent(input.agentPath);
  const modules = input.modulesDir === null ? [] : await readModules(input.modulesDir);
  const { caBundle } = context;
  const files = [...(input.files ?? []), ...(caBundle ? [{ name: bundleName, content: caBundle }] : [])];
  const digest = digestOf({
    builderVersion,
    agent: sha256(agent),
    modules: modules.map(({ file, content }) => [file, sha256(content)]),
    files: files.map(({ name, content }) => [name, sha256(content)]),
  });
  const entry = await ensureEntry({
    parent: join(imageDir, "initramfs"),
    digest,
    info: infoSchema,
    signal: context.signal,
    lease: context.lease,
    build: async (directory) => {
      const archive = encodeInitramfs(agent, modules, files);
      context.onProgress?.("initramfs", `Packing the agent and ${modules.length} modules`);
      await requireSpace(directory, archive.length);
      await writeFile(join(directory, "initramfs.cpio"), archive);
      return { digest: sha256(archive), sizeBytes: archive.length, modules: modules.map(({ file }) => file) };
    },
  });
  const { directory, ...info } = entry;
  return { path: join(directory, "initramfs.cpio"), ...info };
}

async function readAgent(path: string): Promise<Uint8Array> {
  const agent = await readFile(path).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT")) throw error;
    throw new AppError("host_not_ready", `Cannot find the guest agent at "${path}"`, {
      remedy: advice("Build it with `make -C guest`."),
      cause: error,
    });
  });
  if (agent.length < 64 || agent.readUInt32BE(0) !== 0x7f454c46) {
    throw new AppError("invalid_image", `Cannot use "${path}" as the guest agent: it is not an ELF program`);
  }
  return agent;
}

async function readModules(modulesDir: string): Promise<{ file: string; content: Uint8Array }[]> {
  const dependencies = parseModulesDep(await readFile(join(modulesDir, "modules.dep"), "utf8"));
  const builtin = await readFile(join(modulesDir, "modules.builtin"), "utf8");
  const { paths, missing } = loadOrder(wantedModules, dependencies, builtin);
  requireModules(missing);
  return await Promise.all(
    paths.map(async (path) => ({
      file: path.slice(path.lastIndexOf("/") + 1),
      content: await readFile(join(modulesDir, path)),
    })),
  );
}
