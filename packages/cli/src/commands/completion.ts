import { Argument, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

/** Each script calls `forkd __complete` with the words up to the cursor. */
const scripts = {
  bash: `_forkd() {
  local IFS=$'\\n'
  COMPREPLY=($(forkd __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _forkd forkd
`,
  zsh: `#compdef forkd
_forkd() {
  local -a found
  found=("\${(@f)$(forkd __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[*]}" ]]; then compadd -- "\${found[@]}"; else _files; fi
}
# If zsh loads this file from a directory of $fpath, the file is the function itself.
if [[ "\${funcstack[1]}" == _forkd ]]; then _forkd "$@"; else compdef _forkd forkd; fi
`,
  fish: `function __forkd_complete
  set -l words (commandline -opc) (commandline -ct)
  forkd __complete -- $words[2..-1] 2>/dev/null
end
complete -c forkd -a '(__forkd_complete)'
`,
} as const;

export function define(command: Command, toAction: ToAction): void {
  command
    .addArgument(new Argument("<shell>", "Shell").choices(Object.keys(scripts)))
    .addHelpText(
      "after",
      examples(
        'eval "$(forkd completion bash)"',
        "forkd completion fish > ~/.config/fish/completions/forkd.fish",
      ),
    )
    .action(toAction(completion));
}

async function completion(cli: Cli, _options: unknown, shell: keyof typeof scripts): Promise<void> {
  await cli.out.bytes(scripts[shell]);
}
