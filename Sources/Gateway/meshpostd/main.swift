// SPDX-License-Identifier: MIT

// meshpostd: the gateway daemon. Arguments are parsed by hand: a library for it would stay in memory.

import EventLoop
import Gateway
import Glibc
import ServiceManager

let usage = """
  usage: meshpostd [--config FILE] [--check | --restore FILE] [--version]

    --config FILE   the configuration file (default: /etc/meshpost/meshpostd.toml)
    --check         validate the configuration, look at the store, and exit
    --restore FILE  replace the store with a backup (meshpost backup) and exit
    --version       print the version and exit
  """

func fail(_ message: String, _ code: Int32) -> Never {
  for line in message.split(separator: "\n") { Log().error(String(line)) }
  exit(code)
}

var file = "/etc/meshpost/meshpostd.toml"
var isCheck = false
var backup: String?
var arguments = CommandLine.arguments.dropFirst()
// In a process of its own, for the pages.
if arguments.first == PasswordCheck.argument { exit(PasswordCheck.run()) }
while let argument = arguments.popFirst() {
  switch argument {
  case "--config":
    guard let location = arguments.popFirst() else { fail("--config: missing file\n\(usage)", EX_USAGE) }
    file = location
  case "--check": isCheck = true
  case "--restore":
    guard let location = arguments.popFirst() else { fail("--restore: missing file\n\(usage)", EX_USAGE) }
    backup = location
  case "--version":
    print("meshpostd \(Daemon.version)")
    exit(0)
  case "--help", "-h":
    print(usage)
    exit(0)
  default: fail("unknown argument: \(argument)\n\(usage)", EX_USAGE)
  }
}

Credential.lookBeside(file)
// A reload that comes while the gateway begins, or waits for room on the disk, is one of what has been read by then. A signal to end waits for somebody
// who ends the gateway as it should end.
if !isCheck, backup == nil { Signals.hold([SIGHUP, SIGTERM, SIGINT]) }
do {
  let configuration =
    try isCheck
    ? GatewayConfiguration(checking: file)
    : backup == nil ? GatewayConfiguration(startingWith: file) : GatewayConfiguration(file: file)
  for line in configuration.warnings { Log().warning(line) }
  if isCheck {
    if configuration.isBlank {
      Log().warning("\(file): it has no setting: all defaults hold, and there are no upstreams")
    }
    // The gateway starts without what these need.
    for lack in configuration.lacks { Log().warning(lack) }
    for open in configuration.openFiles(of: file) { Log().warning("\(file): \(open.words): \(open.remedy)") }
    if let trouble = configuration.storeTrouble() { Log().warning("\(file): \(trouble)") }
    exit(configuration.lacks.isEmpty ? 0 : EX_CONFIG)
  }
  if let backup {
    print(try Daemon.restore(backup, configuration))
    exit(0)
  }
  guard let daemon = try Daemon.whenDiskAllows(configuration, file: file) else { exit(EX_OK) }
  exit(daemon.run())
} catch let error as GatewayConfiguration.Failure {
  for lack in error.lacks { Log().warning(lack) }
  fail(error.description, EX_CONFIG)
} catch let error as Daemon.StartError {
  fail(error.message, error.code)
}
