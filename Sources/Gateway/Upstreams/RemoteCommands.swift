// SPDX-License-Identifier: MIT

import Companion
import Delivery
import JSON
import Messaging
import Relay
import Store
import Sync
import Timing

/// What servers upstream may have the gateway do, as far as the configuration allows it.
final class RemoteCommands {
  private let messenger: Messenger
  private let synchronizer: Synchronizer
  /// What `status` answers.
  var status: () -> [UInt8] = { Array("{}".utf8) }

  init(_ messenger: Messenger, _ synchronizer: Synchronizer) {
    self.messenger = messenger
    self.synchronizer = synchronizer
  }

  func carryOut(_ command: RemoteCommand, _ done: @escaping (CommandAnswer) -> Void) {
    switch command.name {
    case "send": send(command, done)
    case "sync":
      guard synchronizer.connection.state == .up else {
        return done(.refused(code: "link_down", words: "the radio's link is down"))
      }
      synchronizer.restart(fully: command.body["full"]?.bool ?? false)
      done(.done(Array("{}".utf8)))
    case "status": done(.done(status()))
    default: done(.refused(code: "not_allowed", words: "there is no command \(command.name)"))
    }
  }

  /// Seconds that a command stood in queues, by a clock that can be trusted.
  private func waited(_ command: RemoteCommand) -> Int64 {
    let now = synchronizer.now
    guard now.trusted, let asked = command.asked else { return 0 }
    let (passed, overflow) = now.milliseconds.subtractingReportingOverflow(asked)
    return overflow ? 0 : max(0, passed / 1000)
  }

  /// As `POST /v1/send`; its turn comes after people's here.
  private func send(_ command: RemoteCommand, _ done: @escaping (CommandAnswer) -> Void) {
    guard let to = command.body["to"]?.string, let text = command.body["text"]?.string else {
      return done(.refused(code: "invalid", words: "\"to\" and \"text\" are wanted"))
    }
    var request = SendRequest(
      to: to, text: Text(text), key: "\(command.upstream)/\(command.id)", priority: .relayed, origin: command.upstream,
      splits: command.body["split"]?.bool ?? false)
    if let seconds = command.body["expires_s"]?.integer {
      guard (1...2_592_000).contains(seconds) else {
        return done(.refused(code: "invalid", words: "\"expires_s\" is 1 to 2592000"))
      }
      let left = seconds - waited(command)
      guard left > 0 else {
        return done(.refused(code: "expired", words: "it waited longer than \(seconds) s for the gateway"))
      }
      request.lifetime = .seconds(left)
    }
    messenger.send(request) { [store = messenger.store] result in
      switch result {
      case .failure(.store(let error)): done(.notKept(words: "\(error)"))
      case .failure(let refusal): done(.refused(code: refusal.code, words: refusal.description))
      case .success(let messages):
        done(
          .done(
            JSONWriter.object { json in
              json.arrayField("messages") { json in
                for message in messages { json.object { store.write(message, to: &$0) } }
              }
            }))
      }
    }
  }
}
