// SPDX-License-Identifier: MIT

import Deflate
import Hummingbird
import JSON
import NIOCore
import Synchronization

/// Keys by which gateways on HTTP post small batches without the headers that say the same each time: a greeting gives one, and it stands for
/// the token, the gateway and the epoch of that greeting. They are in memory alone: who has one that is not known here posts as ever, and greets
/// again after its next failure. Source: docs/hub-protocol.md.
final class ShortPosts: Sendable {
  static let keyBytes = 9
  /// Of a body, its key included. Longer ones gain nothing.
  static let maxBody = 8192
  /// Beyond it all begin anew.
  private static let most = 16_384

  struct Session: Sendable, Equatable {
    let authorization: String
    let gateway: String
    let epoch: String
    var key: [UInt8] = []
    /// The end of what was posted last: behind the dictionary, the next is compressed with it.
    var last: [UInt8] = []
    /// Of the batch at hand: the beginning of its digest. With another `last` than the sender's it would unpack to something else.
    var check: [UInt8] = []
  }

  static let checkBytes = 4

  private let known = Mutex((keys: [String: [UInt8]](), sessions: [[UInt8]: Session]()))

  /// The gateway's new key; that of its last greeting counts no more.
  func key(for session: Session) -> [UInt8] {
    let key = (0..<Self.keyBytes).map { _ in UInt8.random(in: .min ... .max) }
    known.withLock { known in
      if known.sessions.count >= Self.most { (known.keys, known.sessions) = ([:], [:]) }
      if let old = known.keys.updateValue(key, forKey: session.gateway) { known.sessions[old] = nil }
      known.sessions[key] = session
      known.sessions[key]?.key = key
    }
    return key
  }

  /// What was posted is stored, and the sender will hear so.
  func took(_ bytes: [UInt8], by session: Session) {
    known.withLock { $0.sessions[session.key]?.last = LinkDictionary.last(of: bytes) }
  }

  func session(_ key: [UInt8]) -> Session? { known.withLock { $0.sessions[key] } }
}

extension HubAPI {
  /// A small batch behind its key. Whether the key's token still allows it is looked at each time.
  func takeShort(_ request: Request, _ context: HubContext) async throws -> Response {
    var request = request
    let bytes: [UInt8]
    do {
      bytes = Array(buffer: try await request.body.collect(upTo: ShortPosts.maxBody))
    } catch {
      return Self.refusal(.contentTooLarge, "a short batch may have at most \(ShortPosts.maxBody) bytes")
    }
    guard var session = short.session(Array(bytes.prefix(ShortPosts.keyBytes))) else {
      return Self.refusal(.notFound, "this key is not known here: greet")
    }
    let rest = bytes.dropFirst(ShortPosts.keyBytes)
    session.check = Array(rest.prefix(ShortPosts.checkBytes))
    request.body = .init(buffer: ByteBuffer(bytes: rest.dropFirst(ShortPosts.checkBytes)))
    let verdict = access.check(session.authorization, gateway: session.gateway, .write)
    return try await answer(request, context, verdict, by: .token, short: session) { try await take($0) }
  }

  /// In answers to greetings that ask for it, of those who may post.
  func writeShort(_ call: Call, epoch: String, to json: inout JSONWriter) {
    guard call.query("short") != nil, let authorization = call.request.headers[.authorization],
      case .allowed = access.check(authorization, gateway: call.gateway, .write)
    else { return }
    let key = short.key(for: .init(authorization: authorization, gateway: call.gateway, epoch: epoch))
    json.field("short", RefusedFile.hex(key))
  }
}
