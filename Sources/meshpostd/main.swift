// SPDX-License-Identifier: MIT

// meshpostd: the gateway daemon. Arguments are read by hand: the library for it would stay resident.

import EventLoop
import Gateway
import Glibc

let usage = """
  usage: meshpostd [--config FILE] [--check | --restore FILE] [--version]

    --config FILE   the configuration (default: /etc/meshpost/meshpostd.toml)
    --check         say whether the configuration is right, and end
    --restore FILE  put a backup (meshpost backup) into the place of the store, and end
    --version       print the version, and end
  """

func fail(_ words: String, _ code: Int32) -> Never {
  for line in words.split(separator: "\n") { Log().error(String(line)) }
  exit(code)
}

var file = "/etc/meshpost/meshpostd.toml"
var isCheck = false
var backup: String?
var arguments = CommandLine.arguments.dropFirst()
while let argument = arguments.popFirst() {
  switch argument {
  case "--config":
    guard let location = arguments.popFirst() else { fail("--config: a file is missing\n\(usage)", EX_USAGE) }
    file = location
  case "--check": isCheck = true
  case "--restore":
    guard let location = arguments.popFirst() else { fail("--restore: a file is missing\n\(usage)", EX_USAGE) }
    backup = location
  case "--version":
    print("meshpostd \(Daemon.version)")
    exit(0)
  case "--help", "-h":
    print(usage)
    exit(0)
  default: fail("\(argument) is not known\n\(usage)", EX_USAGE)
  }
}

do {
  let configuration = try GatewayConfiguration(file: file)
  for line in configuration.warnings { Log().warning(line) }
  if isCheck {
    guard configuration.lacks.isEmpty else { fail(configuration.lacks.joined(separator: "\n"), EX_CONFIG) }
    exit(0)
  }
  if let backup {
    print(try Daemon.restore(backup, configuration))
    exit(0)
  }
  let daemon = try Daemon(configuration, file: file)
  daemon.run()
} catch let error as GatewayConfiguration.Failure {
  fail(error.description, EX_CONFIG)
} catch let error as Daemon.StartError {
  fail(error.words, error.code)
}
