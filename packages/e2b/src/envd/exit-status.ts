/** How a process ended, in the words of Go, which E2B's clients show. Pure. */

type EndEvent = { exitCode: number; exited: boolean; status: string; error?: string };

const signalWords: Readonly<Record<string, string>> = {
  SIGHUP: "hangup",
  SIGINT: "interrupt",
  SIGQUIT: "quit",
  SIGILL: "illegal instruction",
  SIGTRAP: "trace/breakpoint trap",
  SIGABRT: "aborted",
  SIGBUS: "bus error",
  SIGFPE: "floating point exception",
  SIGKILL: "killed",
  SIGUSR1: "user defined signal 1",
  SIGSEGV: "segmentation fault",
  SIGUSR2: "user defined signal 2",
  SIGPIPE: "broken pipe",
  SIGALRM: "alarm clock",
  SIGTERM: "terminated",
};

export function endEvent(exit: { exit_code: number; signal?: string | undefined }): EndEvent {
  if (exit.signal !== undefined) {
    const status = `signal: ${signalWords[exit.signal] ?? exit.signal}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${exit.exit_code}`;
  return {
    exitCode: exit.exit_code,
    exited: true,
    status,
    ...(exit.exit_code !== 0 && { error: status }),
  };
}
