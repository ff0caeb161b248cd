// SPDX-License-Identifier: MIT

import Companion
import Control
import Delivery
import JSON
import MeshCrypto
import Messaging
import Relay
import Store
import Sync

/// Carries out commands of servers.
struct RemoteCommands {
  private let messenger: Messenger
  private let synchronizer: Synchronizer

  init(_ messenger: Messenger, _ synchronizer: Synchronizer) {
    (self.messenger, self.synchronizer) = (messenger, synchronizer)
  }

  /// `status`: the answer to the command `status`.
  func carryOut(_ command: RemoteCommand, status: [UInt8]) async -> CommandAnswer {
    switch command.name {
    case "send": return await send(command)
    case "sync":
      guard synchronizer.connection.state == .up else {
        return .refused(code: "link_down", message: "the radio's link is down")
      }
      do throws(Refusal) { synchronizer.restart(fully: try RequestBody(command.body).flag("full")) } catch {
        return .refused(code: error.code, message: error.description)
      }
      return .done(Array("{}".utf8))
    case "status": return .done(status)
    default: return .refused(code: "not_allowed", message: "unknown command \(command.name)")
    }
  }

  /// The same id with the same content is one command, whichever upstream brings it: two upstreams may use one hub or
  /// broker, and an upstream may be renamed. The key of a message has at most 64 bytes: it has a digest of a long id.
  static func key(ofCommand id: String, _ to: String, _ text: String) -> String {
    let content = JSONWriter.object { json in
      json.field("to", to)
      json.field("text", text)
    }
    let name = id.utf8.count <= longestID ? id : "#" + Hex.string(Digest.sha256(Array(id.utf8)).prefix(16))
    return "command/\(name)/\(Hex.string(Digest.sha256(content).prefix(8)))"
  }

  private static let longestID = 39

  /// Sends as `POST /v1/send`, but after this gateway's own messages.
  private func send(_ command: RemoteCommand) async -> CommandAnswer {
    let body = RequestBody(command.body)
    do throws(Refusal) {
      let (to, text) = (try body.string("to"), try body.string("text"))
      var request = SendRequest(to: to, saying: Text(text))
      request.key = Self.key(ofCommand: command.id, to, text)
      (request.priority, request.origin) = (.relayed, command.upstream)
      request.splits = try body.flag("split")
      try request.readRegion(body)
      if let seconds = try body.integer("expires_s", in: SendRequest.lifetimes) {
        let left = seconds - command.waited / 1000
        guard left > 0 else {
          return .refused(code: "expired", message: "it waited longer than \(seconds) s for the gateway")
        }
        request.lifetime = .seconds(left)
      }
      let messages = try await messenger.send(request)
      let store = messenger.store
      return .done(
        JSONWriter.object { json in
          json.objects("messages", messages) { store.write($0, to: &$1) }
        })
    } catch {
      if case .store(let failure) = error { return .notKept(message: "\(failure)") }
      return .refused(code: error.code, message: error.description)
    }
  }
}
