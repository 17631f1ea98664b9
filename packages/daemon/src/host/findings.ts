/** Checks of what the daemon itself listens on and writes: socket, address, token, log file. */
import { chmod, access, constants, rm, stat } from "node:fs/promises";
import net from "node:net";
import { dirname, join } from "node:path";
import { isErrno } from "@forkd/base";
import { fail, ok, warn, type Finding } from "@forkd/runtime";
import type { Settings } from "../settings/config.ts";

export async function placeFindings(settings: Settings, isRunning: boolean): Promise<Finding[]> {
  return [
    await socketFinding(settings.socket, isRunning),
    ...(isRunning ? [] : await addressFindings(settings.listen)),
    await tokenFinding(join(settings.data_dir, "token")),
    ...(await logFindings(settings.log_file)),
  ];
}

async function socketFinding(path: string, isRunning: boolean): Promise<Finding> {
  if (isRunning) return ok("socket", path);
  const state = await connectTo({ path });
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
  if (listen === "off") return [];
  const colon = listen.lastIndexOf(":");
  const host = listen.slice(0, colon).replace(/^\[|\]$/g, "");
  const port = Number(listen.slice(colon + 1));
  if (port === 0) return [];
  const failure = await listenOnce(host, port);
  if (failure === undefined) return [ok("address", `${listen} is free`)];
  return [
    fail("address", `cannot listen on ${listen}: ${failure}`, {
      action: "change_setting",
      setting: "listen",
      to: 'another address, or to "off"',
    }),
  ];
}

async function tokenFinding(path: string): Promise<Finding> {
  const facts = await stat(path).catch((error: unknown) => {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  });
  if (facts === undefined) return ok("token", "none yet; the daemon makes one");
  const mode = facts.mode & 0o777;
  if ((mode & 0o077) === 0) return ok("token", `${path}, for its owner alone`);
  return {
    ...warn(
      "token",
      `${path} has mode ${mode.toString(8)}: others may read it`,
      `Run \`chmod 600 ${path}\`.`,
    ),
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

function connectTo(where: { path: string }): Promise<"answers" | "stale" | "absent"> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(where);
    socket.once("connect", () => {
      socket.destroy();
      resolve("answers");
    });
    socket.once("error", (error) => {
      if (isErrno(error, "ENOENT", "ENOTDIR")) resolve("absent");
      else if (isErrno(error, "ECONNREFUSED", "ENOTSOCK")) resolve("stale");
      else reject(error);
    });
  });
}

/** Why it does not work, or undefined. */
function listenOnce(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", (error) => resolve(error.message));
    server.listen({ host, port }, () => server.close(() => resolve(undefined)));
  });
}
