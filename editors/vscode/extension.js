// Starts `openinfer lsp` for graph files, and `openinfer dap` when one is debugged.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function command() {
  return vscode.workspace.getConfiguration("openinfer").get("command", "openinfer");
}

async function activate(context) {
  const server = { command: command(), args: ["lsp"] };
  const options = { documentSelector: [{ language: "oig" }] };
  client = new LanguageClient("openinfer", "OpenInfer", server, options);
  const factory = {
    createDebugAdapterDescriptor: () => new vscode.DebugAdapterExecutable(command(), ["dap"]),
  };
  const provider = {
    resolveDebugConfiguration(_folder, configuration) {
      const editor = vscode.window.activeTextEditor;
      if (!configuration.type && editor && editor.document.languageId === "oig") {
        return { type: "openinfer", request: "launch", name: "Debug this graph", program: editor.document.fileName };
      }
      return configuration;
    },
  };
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory("openinfer", factory),
    vscode.debug.registerDebugConfigurationProvider("openinfer", provider),
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`Cannot start '${command()} lsp': ${error.message}. Is openinfer[lsp] installed?`);
  }
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
