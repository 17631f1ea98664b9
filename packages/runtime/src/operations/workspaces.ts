/**
 * A workspace is a sandbox with a name. It can be suspended, and it is still there after a restart of the
 * daemon.
 */
import { AppError, isSandbox, type ParsedOf, type WorkspaceInfo } from "@forkd/contract";
import { limitsOf } from "../admission/limits.ts";
import { pauseSandbox } from "../capture/save-sandbox.ts";
import type { Context } from "../context.ts";
import { admitFork, forkChildren, requireSandbox } from "../launch/fork-children.ts";
import { resumeSandbox } from "../launch/resume-sandbox.ts";
import { networkForFork } from "../network/asked-network.ts";
import { hasLabels } from "../observe/label-filter.ts";
import type { Runtime } from "../runtime.ts";
import { byAge } from "../sandbox/matching.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";

function statusOf(sandbox: Sandbox): WorkspaceInfo["status"] {
  if (sandbox.state === "paused") return sandbox.saved ? "suspended" : "stale";
  return sandbox.state;
}

function describe(sandbox: Sandbox, name: string): WorkspaceInfo {
  return {
    id: sandbox.id,
    name,
    source_snapshot_tag: sandbox.snapshotTag,
    status: statusOf(sandbox),
    ...lostBy(sandbox),
    ...(sandbox.state === "running" && { live_sandbox_id: sandbox.id }),
    created_at_unix: sandbox.facts.createdAt,
    last_active_unix: sandbox.lastActive,
  };
}

function lostBy({ status, saved }: Sandbox): Pick<WorkspaceInfo, "lost"> {
  if (status.kind !== "paused" || !status.loss) return {};
  return { lost: { since: saved ? "suspended" : "created", reason: status.loss.reason.text } };
}

function find(runtime: Pick<Runtime, "registry">, name: string): Sandbox | undefined {
  return runtime.registry.all().find((sandbox) => sandbox.facts.workspace === name);
}

function get(runtime: Pick<Runtime, "registry">, name: string): Sandbox {
  const sandbox = find(runtime, name);
  if (sandbox) return sandbox;
  throw new AppError("workspace_not_found", `Cannot find workspace "${name}"`, {
    details: { name },
    remedy: { action: "list_workspaces" },
  });
}

type WorkspaceFilter = Omit<ParsedOf<"listWorkspaces">, "limit" | "cursor">;

/** Matching workspaces, oldest first. */
export function listWorkspaces(
  runtime: Pick<Runtime, "registry">,
  filter: WorkspaceFilter = {},
): WorkspaceInfo[] {
  return runtime.registry
    .all()
    .flatMap((sandbox) => {
      const { workspace, owner, labels } = sandbox.facts;
      if (workspace === undefined) return [];
      const info = describe(sandbox, workspace);
      const isAsked =
        (filter.tag === undefined || info.source_snapshot_tag === filter.tag) &&
        (filter.state === undefined || info.status === filter.state) &&
        (filter.owner === undefined || owner === filter.owner) &&
        (filter.label === undefined || hasLabels(labels, filter.label));
      return isAsked ? [info] : [];
    })
    .sort(byAge);
}

export function getWorkspace(runtime: Pick<Runtime, "registry">, { name }: { name: string }): WorkspaceInfo {
  return describe(get(runtime, name), name);
}

export function createWorkspace(
  runtime: Runtime,
  request: ParsedOf<"createWorkspace">,
  context: Context,
): Promise<WorkspaceInfo> {
  const { name } = request;
  if (find(runtime, name) || runtime.newWorkspaces.has(name)) {
    throw new AppError("already_exists", `Cannot make workspace "${name}": the name is taken`, {
      details: { name },
      remedy: { action: "delete_workspace", name },
    });
  }
  runtime.newWorkspaces.add(name);
  return runtime.work
    .whileOpen(context.signal, async (signal) => {
      const snapshot = await usableSnapshot(runtime, request.snapshot_tag);
      const asked = { ...request, n: 1, vary: [], workspace: name };
      const network = networkForFork(runtime, snapshot, request, context.caller);
      const plan = { snapshot, request: asked, limits: limitsOf(runtime, request), network };
      const admitted = admitFork(runtime, plan, context.caller);
      const entries = await forkChildren(runtime, admitted, { ...context, signal });
      requireSandbox(entries);
      const [entry] = entries;
      if (!entry || !isSandbox(entry)) throw new AppError("internal", "The fork gave no sandbox");
      return describe(runtime.registry.get(entry.id), name);
    })
    .finally(() => runtime.newWorkspaces.delete(name));
}

export async function deleteWorkspace(
  runtime: Pick<Runtime, "registry">,
  { name }: { name: string },
): Promise<void> {
  await runtime.registry.remove(get(runtime, name).id);
}

export async function suspendWorkspace(
  runtime: Runtime,
  { name }: { name: string },
  context: Context,
): Promise<WorkspaceInfo> {
  const sandbox = get(runtime, name);
  await pauseSandbox(runtime, sandbox, context);
  return describe(sandbox, name);
}

export async function resumeWorkspace(
  runtime: Runtime,
  { name }: { name: string },
  context: Context,
): Promise<WorkspaceInfo> {
  const sandbox = get(runtime, name);
  const lost = lostBy(sandbox);
  await resumeSandbox(runtime, sandbox, context);
  return { ...describe(sandbox, name), ...lost };
}
