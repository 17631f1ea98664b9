export { serve } from "./serve.ts";
export type { ServeOptions } from "./serve.ts";
export { configFileOf, loadConfig } from "./settings/load.ts";
export { flagsOf, settingNames, settingTable, variableOf, type SettingFlag } from "./settings/table.ts";
export {
  describeSettings,
  requireSetting,
  setSettings,
  unsetSettings,
  type Change,
} from "./settings/edit.ts";
export type { Config, Flags, SettingName, Settings, Source } from "./settings/load.ts";
export { fixHost, inspectHost, type Fixed } from "./host/inspect.ts";
