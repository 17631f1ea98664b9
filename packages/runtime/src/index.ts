/** Stub surface; see the operations. */
import type { Logger } from "@forkd/base";
import type { CleanupReport, CreateSnapshotRequest, DoctorReport, EvalEvent, EvalRequest, EvalResult, ExecEvent, ExecInfo, ExecRequest, ExecResult, FileEntry, ForkEntry, ForkRequest, Language, ParsedOf, SandboxInfo, SnapshotDetail, SnapshotInfo, Status } from "@forkd/contract";

export type Context = { signal?: AbortSignal; log: Logger };
export interface Runtime extends AsyncDisposable { readonly isRuntime: true }
export type RuntimeConfig = {
  dataDir: string;
  runtimeDir: string;
  /** directory with guest/build and guest/kernels; found by the daemon from its own location */
  guestDir: string;
  accelerator: "auto" | "kvm" | "tcg";
  qemuPath: string;
  poolSize: number;
  forkParallelism: number;
  maxSandboxes: number;
};
declare function stub(): never;
export function openRuntime(_config: RuntimeConfig, _log: Logger): Promise<Runtime> { return stub(); }
export function status(_r: Runtime): Promise<Status> { return stub(); }
export function doctor(_r: Runtime): Promise<DoctorReport> { return stub(); }
export function cleanup(_r: Runtime, _i: { dry_run: boolean }): Promise<CleanupReport> { return stub(); }
export function listSnapshots(_r: Runtime): Promise<SnapshotInfo[]> { return stub(); }
export function createSnapshot(_r: Runtime, _i: CreateSnapshotRequest, _c: Context & { onProgress: (step: string, message: string) => void }): Promise<SnapshotInfo> { return stub(); }
export function snapshotInfo(_r: Runtime, _i: ParsedOf<"snapshotInfo">): Promise<SnapshotDetail> { return stub(); }
export function removeSnapshot(_r: Runtime, _i: ParsedOf<"removeSnapshot">): Promise<void> { return stub(); }
export function listSandboxes(_r: Runtime, _i: ParsedOf<"listSandboxes">): SandboxInfo[] { return stub(); }
export function getSandbox(_r: Runtime, _i: { id: string }): SandboxInfo { return stub(); }
/** One entry per child; throws only when no child could be made. */
export function fork(_r: Runtime, _i: ForkRequest, _c: Context): Promise<ForkEntry[]> { return stub(); }
export function kill(_r: Runtime, _i: { id: string }): Promise<void> { return stub(); }
export function setTtl(_r: Runtime, _i: ParsedOf<"setTtl">): SandboxInfo { return stub(); }
export function ping(_r: Runtime, _i: { id: string }, _c: Context): Promise<{ ok: boolean; round_trip_ms: number }> { return stub(); }
export function consoleLog(_r: Runtime, _i: ParsedOf<"logs">, _c: Context): Promise<AsyncIterable<Uint8Array>> { return stub(); }
export function exec(_r: Runtime, _i: ExecRequest & { id: string }, _c: Context): Promise<ExecResult> { return stub(); }
export function startExec(_r: Runtime, _i: ExecRequest & { id: string }, _c: Context): Promise<{ exec_id: number; pid: number }> { return stub(); }
/** Rejects if the command cannot start. Abort kills the command; a reader that stops early kills it too. */
export function streamExec(_r: Runtime, _i: ExecRequest & { id: string }, _c: Context): Promise<AsyncIterable<ExecEvent>> { return stub(); }
/** Abort only detaches. */
export function attachExec(_r: Runtime, _i: ParsedOf<"attachExec">, _c: Context): Promise<AsyncIterable<ExecEvent>> { return stub(); }
export function listExecs(_r: Runtime, _i: { id: string }, _c: Context): Promise<ExecInfo[]> { return stub(); }
export function execInput(_r: Runtime, _i: ParsedOf<"execInput">, _c: Context): Promise<void> { return stub(); }
export function execSignal(_r: Runtime, _i: ParsedOf<"execSignal">): void { return stub(); }
export function execResize(_r: Runtime, _i: ParsedOf<"execResize">): void { return stub(); }
export function evaluate(_r: Runtime, _i: EvalRequest & { id: string }, _c: Context): Promise<EvalResult> { return stub(); }
export function streamEval(_r: Runtime, _i: EvalRequest & { id: string }, _c: Context): Promise<AsyncIterable<EvalEvent>> { return stub(); }
export function interrupt(_r: Runtime, _i: { id: string; language?: Language | undefined }): void { return stub(); }
export function listContexts(_r: Runtime, _i: { id: string }, _c: Context): Promise<{ name: string; language: Language }[]> { return stub(); }
export function dropContext(_r: Runtime, _i: ParsedOf<"dropContext">, _c: Context): Promise<void> { return stub(); }
/** Resolves once the file is open, so that an error can still become a status. */
export function readFile(_r: Runtime, _i: ParsedOf<"readFile">, _c: Context): Promise<AsyncIterable<Uint8Array>> { return stub(); }
export function writeFile(_r: Runtime, _i: ParsedOf<"writeFile">, _content: AsyncIterable<Uint8Array>, _c: Context): Promise<FileEntry> { return stub(); }
export function listFiles(_r: Runtime, _i: ParsedOf<"listFiles">, _c: Context): Promise<FileEntry[]> { return stub(); }
export function statFile(_r: Runtime, _i: ParsedOf<"statFile">, _c: Context): Promise<FileEntry> { return stub(); }
export function makeDirectory(_r: Runtime, _i: ParsedOf<"makeDirectory">, _c: Context): Promise<void> { return stub(); }
export function moveFile(_r: Runtime, _i: ParsedOf<"moveFile">, _c: Context): Promise<void> { return stub(); }
export function removeFile(_r: Runtime, _i: ParsedOf<"removeFile">, _c: Context): Promise<void> { return stub(); }
export function chmodFile(_r: Runtime, _i: ParsedOf<"chmodFile">, _c: Context): Promise<void> { return stub(); }
