declare module '@jupyterlab/completer' {
  export const ICompletionProviderManager: unique symbol;
  export const IInlineCompleterFactory: unique symbol;
}
declare module '@jupyterlab/notebook' {
  export const INotebookTracker: unique symbol;
}
declare module '@jupyterlab/settingregistry' {
  export const ISettingRegistry: unique symbol;
}
