// SPDX-License-Identifier: MIT

import Deflate
import Hummingbird
import JSON
import NIOCore
import Synchronization

/// Keys with which gateways on HTTP post small batches without repeated headers: a greeting's answer has a key, which replaces the token, the gateway
/// and the epoch of that greeting. Keys are in memory only: a gateway whose key is unknown posts with all headers, and greets again after its next
/// failure. Source: docs/hub-protocol.md.
final class ShortPosts: Sendable {
  static let keyBytes = 9
  /// Largest body with its key. A longer one gains nothing.
  static let maxBody = 8192
  /// Most keys. At this limit the hub forgets all of them.
  private static let most = 16_384

  struct Session: Sendable, Equatable {
    let authorization: String
    let gateway: String
    let epoch: String
    var key: [UInt8] = []
    /// The end of the last post: the next one is compressed with the dictionary and this.
    var last: [UInt8] = []
    /// The beginning of the digest of the batch in hand. If `last` differs from the sender's, the batch would unpack to something else.
    var check: [UInt8] = []
  }

  static let checkBytes = 4

  private let known = Mutex((keys: [String: [UInt8]](), sessions: [[UInt8]: Session]()))

  /// The gateway's new key; its earlier key ends.
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

  /// Notes a stored post, just before the hub acknowledges it.
  func took(_ bytes: [UInt8], by session: Session) {
    known.withLock { $0.sessions[session.key]?.last = LinkDictionary.last(of: bytes) }
  }

  func session(_ key: [UInt8]) -> Session? { known.withLock { $0.sessions[key] } }
}

extension HubAPI {
  /// Takes a small batch with a key. It checks for each batch whether the key's token still allows it.
  func takeShort(_ request: Request, _ context: HubContext) async throws -> Response {
    var request = request
    let bytes: [UInt8]
    do throws(Unreadable) {
      bytes = try await Self.body(of: request, most: ShortPosts.maxBody, "a short batch")
    } catch {
      return Self.refusal(error.status, error.message)
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

  /// Adds a key to the answer to a greeting that asks for one and may post.
  func short(_ call: Call, epoch: String) -> JSONObject {
    guard call.query("short") != nil, let authorization = call.request.headers[.authorization],
      case .allowed = access.check(authorization, gateway: call.gateway, .write)
    else { return [:] }
    let key = short.key(for: .init(authorization: authorization, gateway: call.gateway, epoch: epoch))
    return ["short": key.hex]
  }
}
