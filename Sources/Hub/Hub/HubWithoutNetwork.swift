// SPDX-License-Identifier: MIT

import FoundationEssentials
import HTTPTypes
import Hummingbird
import JSON
import Logging
import NIOCore
import NIOEmbedded
import Synchronization

/// A whole hub whose requests and messages of links are calls: for a simulation, which has connections and time of its own.
package struct HubWithoutNetwork: Sendable {
  package typealias Answer = (status: Int, headers: [(String, String)], body: [UInt8])

  private let server: HubServer
  private let maintenance: RetentionService
  private let respond: @Sendable (Request, HubContext) async throws -> Response
  private let changes = Changes()
  /// Of all requests: an embedded channel stays in memory until somebody ends it.
  private let channel: any Channel = EmbeddedChannel()

  private final class Changes: Sendable {
    let list = Mutex<[HubChange]>([])
  }

  /// `configuration`: the text of a configuration file.
  package init(_ configuration: String) async throws {
    let read = try HubConfiguration(parsing: Array(configuration.utf8), file: "/hub.toml")
    CallingThread.hasDatabases.store(true, ordering: .relaxed)
    server = try HubServer(read)
    maintenance = RetentionService(stores: server.api.stores, retention: read.retention, leastRest: .zero) {
      if $0 <= .warning { HubLog.write($0, $1) }
    }
    let responder = server.api.router().buildResponder()
    respond = { try await responder.respond(to: $0, context: $1) }
    let changes = changes
    await server.api.stores.listen { change in changes.list.withLock { $0.append(change) } }
  }

  /// The committed changes since the last call, each as a gateway and a bucket with its newest number. The gateway is empty for a shared bucket.
  package func takeChanges() -> [(gateway: String, bucket: String, seq: Int64)] {
    changes.list.withLock { list in
      defer { list = [] }
      return list.map { ($0.gateway, $0.bucket, $0.seq) }
    }
  }

  /// What a hub with a network does each hour. `uptime`: of the machine, milliseconds.
  package func deleteOld(uptime: Int64) async { await maintenance.once(at: HubClock.now, uptime: uptime) }

  package func answer(_ method: String, _ target: String, _ headers: [(String, String)], _ body: [UInt8]) async
    -> Answer
  {
    var fields = HTTPFields()
    var authority: String?
    for (name, value) in headers {
      // As of a request from the network, the first `Host` is the authority.
      if authority == nil, name.lowercased() == "host" {
        authority = value
      } else if let name = HTTPField.Name(name) {
        fields.append(HTTPField(name: name, value: value))
      }
    }
    let head = HTTPRequest(
      method: HTTPRequest.Method(method) ?? .get, scheme: "http", authority: authority ?? "hub", path: target,
      headerFields: fields)
    let request = Request(head: head, body: RequestBody(buffer: ByteBuffer(bytes: body)))
    let source = ApplicationRequestContextSource(channel: channel, logger: Logger(label: "hub"))
    do {
      let response = try await respond(request, HubContext(source: source))
      let headers = response.headers.map { ($0.name.rawName, $0.value) }
      return (Int(response.status.code), headers, try await response.body.bytes())
    } catch {
      return (500, [], Array("\(error)".utf8))
    }
  }

  /// Does work of the hub on this thread, the databases' as well, and returns when it is done.
  package static func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
    try CallingThread.wait(for: work)
  }

  /// One link of a gateway.
  package struct Link: Sendable {
    fileprivate let session: LinkSession
    fileprivate let liveness = LinkSession.Liveness()

    /// Handles a message of the gateway. The answer, if there is one; an error ends the link.
    package func answer(_ bytes: [UInt8]) async throws -> [UInt8]? {
      let message: JSONValue
      do {
        message = try JSONValue(parsing: bytes)
      } catch {
        guard let number = LinkSession.batch(of: bytes) else { throw error }
        return LinkSession.refusal(number, .malformed("the batch is not valid JSON"))
      }
      return try await session.answer(message["type"]?.string ?? "", message, bytes, liveness)
    }
  }

  /// Opens a link; `nil`: the token does not allow it.
  package func link(of gateway: String, authorization: String?) -> Link? {
    let api = server.api
    guard case .allowed(let grant) = api.access.check(authorization, gateway: gateway, .write) else { return nil }
    return Link(
      session: LinkSession(
        gateway: gateway, stores: api.stores, registry: api.registry, limiter: api.limiter, maxMessage: api.maxBody,
        compression: nil, isAllowed: { api.access.allows(grant) }))
  }
}
