/**
 * The services of a recipe: commands that keep running in the parent. They are watched from their start until
 * the parent is saved, so that no snapshot contains a service that has exited or is not ready.
 */
import type { AppError } from "@forkd/contract";
import { createDeferred } from "@forkd/base";
import { readFile, signalName, type AgentClient, type AgentExit, type AgentProcess } from "@forkd/machine";
import { serviceLabel, serviceNames } from "../guest/service-names.ts";
import { startFailure, stepFailure } from "./step-output.ts";

export type ServiceSpec = {
  readonly name: string;
  readonly argv: readonly string[];
  readonly port?: number | undefined;
};

/** A service of a recipe. */
export type AskedProgram = {
  readonly name?: string | undefined;
  readonly argv: readonly string[];
  readonly ready?: { readonly port: number } | undefined;
};

/** Services with their names, none of which is one of `others`. */
export function planServices(asked: readonly AskedProgram[], others: readonly string[] = []): ServiceSpec[] {
  const names = serviceNames(asked, others);
  return asked.map(({ argv, ready }, index) => ({ name: names[index] ?? "", argv, port: ready?.port }));
}

const readyTimeoutMs = 120_000;
const pollMs = 100;
/** output per stream that the guest keeps, for the logs in its forks */
const keptBytes = 256 * 1024;
const keptChars = 64 * 1024;

type Service = {
  readonly spec: ServiceSpec;
  readonly process: AgentProcess;
  output: string;
  exit: AgentExit | undefined;
};

export class Services {
  readonly #agent: AgentClient;
  readonly #env: Readonly<Record<string, string>>;
  readonly #where: { readonly cwd?: string; readonly user?: string };
  readonly #readyTimeoutMs: number;
  readonly #services: Service[] = [];
  /** rejects when a service fails */
  readonly #failed = createDeferred<never>();

  constructor(
    agent: AgentClient,
    options: {
      env: Readonly<Record<string, string>>;
      cwd?: string | undefined;
      user?: string | undefined;
      readyTimeoutMs?: number;
    },
  ) {
    this.#agent = agent;
    const { env, cwd, user } = options;
    this.#env = env;
    this.#where = { ...(cwd !== undefined && { cwd }), ...(user !== undefined && { user }) };
    this.#readyTimeoutMs = options.readyTimeoutMs ?? readyTimeoutMs;
    this.#failed.promise.catch(() => undefined);
  }

  /** Starts a service and waits until its port accepts, if it has one. */
  async start(spec: ServiceSpec): Promise<void> {
    const service = await this.#launch(spec);
    this.#services.push(service);
    if (spec.port === undefined) return;
    const until = performance.now() + this.#readyTimeoutMs;
    while (!(await this.orFailure(this.#accepts(spec.port)))) {
      // The guest does not announce a listening socket, so it has to be polled.
      if (performance.now() > until) throw notReady(service, this.#readyTimeoutMs);
      await this.orFailure(new Promise((resolve) => setTimeout(resolve, pollMs)));
    }
  }

  /** Waits for `work`, but not longer than the services run. */
  orFailure<T>(work: Promise<T>): Promise<T> {
    work.catch(() => undefined);
    return Promise.race([this.#failed.promise, work]);
  }

  /** Every service runs and accepts on its port. */
  async check(): Promise<void> {
    for (const service of this.#services) {
      const { port } = service.spec;
      if (port !== undefined && !(await this.orFailure(this.#accepts(port)))) throw noLongerReady(service);
    }
    // An exit that happened before arrives before the answer.
    if (this.#services.length > 0) await this.orFailure(this.#agent.ping());
  }

  /** Lets the services run without a reader, as in a child. */
  async leave(): Promise<void> {
    await Promise.all(this.#services.map(({ process }) => process.detach()));
  }

  async #launch(spec: ServiceSpec): Promise<Service> {
    const { argv, name } = spec;
    const started = this.#agent.start({
      argv,
      env: this.#env,
      ...this.#where,
      detached: true,
      label: serviceLabel(name),
      keepBytes: keptBytes,
    });
    try {
      await started.started;
    } catch (error) {
      throw startFailure(argv, error);
    }
    const process = this.#agent.attach(started.id, [0, 0, 0], {
      onOutput: ({ bytes }) => {
        service.output = (service.output + bytes.toString("utf8")).slice(-keptChars);
      },
    });
    const service: Service = { spec, process, output: "", exit: undefined };
    process.exit.then(
      (exit) => {
        service.exit = exit;
        if (!isLauncher(service)) this.#failed.reject(exited(service));
      },
      // The connection ended, or leave() was called.
      () => undefined,
    );
    await process.started;
    return service;
  }

  async #accepts(port: number): Promise<boolean> {
    const listening = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, "0")} [0-9A-F]+:0000 0A `);
    for (const table of ["/proc/net/tcp", "/proc/net/tcp6"]) {
      let text = "";
      for await (const bytes of await readFile(this.#agent, table)) text += bytes.toString("latin1");
      if (listening.test(text)) return true;
    }
    return false;
  }
}

/** A command that starts a daemon and exits, such as `pg_ctlcluster`: its port tells whether the daemon runs. */
function isLauncher({ spec, exit }: Service): boolean {
  return exit?.code === 0 && spec.port !== undefined;
}

function exited({ spec, exit, output }: Service): AppError {
  const how =
    exit?.signal === undefined
      ? `exited with code ${exit?.code ?? 0}`
      : `was killed by ${signalName(exit.signal)}`;
  return stepFailure(`Service "${spec.name}" ${how}`, output, {
    details: { argv: [...spec.argv], exit_code: exit?.code ?? null, signal: exit?.signal ?? null },
  });
}

function notReady({ spec, exit, output }: Service, afterMs: number): AppError {
  const ended = exit ? ` (it exited with code ${exit.code ?? 0})` : "";
  return stepFailure(
    `Service "${spec.name}" does not listen on port ${spec.port} after ${afterMs / 1000} s${ended}`,
    output,
    { details: { argv: [...spec.argv], port: spec.port } },
  );
}

function noLongerReady({ spec, output }: Service): AppError {
  return stepFailure(`Service "${spec.name}" no longer listens on port ${spec.port}`, output, {
    details: { argv: [...spec.argv], port: spec.port },
  });
}
