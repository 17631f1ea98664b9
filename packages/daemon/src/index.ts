export { serve } from "./serve.ts";
export { configFileOf, loadConfig } from "./settings/load.ts";
export { flagsOf, settingNames, settingTable, variableOf } from "./settings/table.ts";
export {
  describeSettings,
  requireSetting,
  setSettings,
  unsetSettings,
  type Change,
} from "./settings/edit.ts";
export type { Flags, Settings, Source } from "./settings/load.ts";
export { fixHost, inspectHost, type Fixed } from "./host/inspect.ts";
