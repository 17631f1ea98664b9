/** Methods of E2B's services `process.Process` and `filesystem.Filesystem`. */
import { AppError } from "@forkd/contract";
import { serverStream, unary, type Method } from "../connect/methods.ts";
import type { EnvdCall } from "./call.ts";
import { listDirectory, makeDir, move, remove, statEntry } from "./filesystem.ts";
import {
  closeStdin,
  connectProcess,
  listProcesses,
  resizeProcess,
  sendInput,
  sendSignal,
  startProcess,
} from "./processes.ts";
import * as requests from "./requests.ts";
import { watchDirectory, Watchers } from "./watch.ts";

type Methods = Record<string, Method<EnvdCall>>;

/** By the path of their requests. */
export function createMethods(): ReadonlyMap<string, Method<EnvdCall>> {
  return new Map([
    ...methodsOf("process.Process", processMethods),
    ...methodsOf("filesystem.Filesystem", fileMethods(new Watchers())),
  ]);
}

function methodsOf(service: string, methods: Methods): [string, Method<EnvdCall>][] {
  return Object.entries(methods).map(([name, method]) => [`/${service}/${name}`, method]);
}

const processAlive = { event: { keepalive: {} } };

const processMethods: Methods = {
  Start: serverStream(requests.startSchema, processAlive, (call: EnvdCall, request, { timeoutMs }) =>
    startProcess(call, request, timeoutMs),
  ),
  Connect: serverStream(requests.selectedSchema, processAlive, (call: EnvdCall, { process }) =>
    connectProcess(call, process),
  ),
  List: unary(requests.emptySchema, listProcesses),
  SendInput: unary(requests.inputSchema, async (call: EnvdCall, { process, input }) => {
    const data = input.stdin ?? input.pty;
    if (!data) throw new AppError("invalid_request", 'Cannot read the request: the field "input" is empty');
    await sendInput(call, process, data);
  }),
  SendSignal: unary(requests.signalSchema, (call: EnvdCall, { process, signal }) =>
    sendSignal(call, process, signal === "SIGNAL_SIGTERM" ? "SIGTERM" : "SIGKILL"),
  ),
  CloseStdin: unary(requests.selectedSchema, (call: EnvdCall, { process }) => closeStdin(call, process)),
  Update: unary(requests.updateSchema, (call: EnvdCall, { process, pty }) =>
    resizeProcess(call, process, pty?.size),
  ),
};

const fileMethods = (watchers: Watchers): Methods => ({
  Stat: unary(requests.pathSchema, (call: EnvdCall, { path }) => statEntry(call, path)),
  ListDir: unary(requests.listSchema, listDirectory),
  MakeDir: unary(requests.pathSchema, (call: EnvdCall, { path }) => makeDir(call, path)),
  Move: unary(requests.moveSchema, move),
  Remove: unary(requests.pathSchema, (call: EnvdCall, { path }) => remove(call, path)),
  WatchDir: serverStream(requests.watchSchema, { keepalive: {} }, watchDirectory),
  CreateWatcher: unary(requests.watchSchema, (call: EnvdCall, request) => watchers.create(call, request)),
  GetWatcherEvents: unary(requests.watcherSchema, (call: EnvdCall, { watcherId }) =>
    watchers.events(call, watcherId),
  ),
  RemoveWatcher: unary(requests.watcherSchema, async (call: EnvdCall, { watcherId }) =>
    watchers.remove(call, watcherId),
  ),
});
