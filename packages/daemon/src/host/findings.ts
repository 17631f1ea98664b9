/** Checks of what the daemon itself listens on and writes: socket, address, token, log file. */
import { chmod, access, constants, rm, stat } from "node:fs/promises";
import net from "node:net";
import { dirname } from "node:path";
import { isErrno, probeSocket } from "@forkd/base";
import { fail, ok, warn, type Finding } from "@forkd/runtime";
import { tokenFile, type TokenPlace } from "../access/token.ts";
import { parseListen, type ListenAddress } from "../settings/exposure.ts";
import type { Settings } from "../settings/load.ts";

export async function placeFindings(settings: Settings, isRunning: boolean): Promise<Finding[]> {
  return [
    await socketFinding(settings.socket, isRunning),
    ...(isRunning ? [] : await addressFindings(settings.listen)),
    await tokenFinding({ dataDir: settings.data_dir, file: settings.token_file }),
    ...(await logFindings(settings.log_file)),
  ];
}

async function socketFinding(path: string, isRunning: boolean): Promise<Finding> {
  const state = await probeSocket(path);
  if (isRunning && state !== "answers")
    return fail(
      "socket",
      `${path} was removed; the daemon makes it again`,
      "Keep programs that clean up away from the runtime directory.",
    );
  if (isRunning) return ok("socket", path);
  if (state === "answers")
    return fail("socket", `another daemon listens on ${path}`, {
      action: "change_setting",
      setting: "runtime_dir",
      to: "another directory",
    });
  if (state === "absent") return ok("socket", `${path} is free`);
  return {
    ...ok("socket", `${path} was left by a daemon that is gone; the next one replaces it`),
    fix: async () => {
      await rm(path, { force: true });
      return `removed the stale socket ${path}`;
    },
  };
}

async function addressFindings(listen: string): Promise<Finding[]> {
  const address = parseListen(listen);
  if (address === undefined || address.port === 0) return [];
  const failure = await listenOnce(address);
  if (failure === undefined) return [ok("address", `${listen} is free`)];
  return [
    fail("address", `cannot listen on ${listen}: ${failure}`, {
      action: "change_setting",
      setting: "listen",
      to: 'another address, or to "off"',
    }),
  ];
}

/**
 * The daemon makes its own file and keeps it private; a file of the operator must exist and is not changed.
 */
async function tokenFinding(place: TokenPlace): Promise<Finding> {
  const path = tokenFile(place);
  const isOwn = place.file === undefined;
  const facts = await stat(path).catch((error: unknown) => {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  });
  if (facts === undefined) {
    if (isOwn) return ok("token", "none yet; the daemon makes one");
    return fail("token", `${path} does not exist`, "Put a token there, or unset token_file.");
  }
  const mode = facts.mode & 0o777;
  if ((mode & 0o077) === 0) return ok("token", `${path}, for its owner alone`);
  const finding = warn(
    "token",
    `${path} has mode ${mode.toString(8)}: others may read it`,
    `Run \`chmod 600 ${path}\`.`,
  );
  if (!isOwn) return finding;
  return {
    ...finding,
    fix: async () => {
      await chmod(path, 0o600);
      return `chmod 600 ${path}`;
    },
  };
}

async function logFindings(file: string): Promise<Finding[]> {
  if (file === "stderr") return [];
  const isWritable = (path: string) =>
    access(path, constants.W_OK).then(
      () => true,
      () => false,
    );
  if ((await isWritable(file)) || (await isWritable(dirname(file)))) return [ok("log file", file)];
  return [
    fail("log file", `${file} cannot be written`, {
      action: "change_setting",
      setting: "log_file",
      to: "another path",
    }),
  ];
}

/** Why it does not work, or undefined. */
function listenOnce({ host, port }: ListenAddress): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", (error) => resolve(error.message));
    server.listen({ host, port }, () => server.close(() => resolve(undefined)));
  });
}
