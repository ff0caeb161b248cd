// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON
import ProxyTunnel
import Sockets
import Store
import Timing

/// POSTs events to any HTTP(S) address, one each, or in batches. A 2xx answer is the acknowledgement. Source:
/// docs/webhooks.md.
///
/// After a lost answer the server gets an event again, with the same `Idempotency-Key`.
final class WebhookCarrier: MeteredCarrier {
  let kind = "webhook"
  let serverKeepsCount = false
  let place: String
  /// A file whose first line is the secret that signs the body.
  private let secretFile: String?
  private let template: BodyTemplate?
  private let contentType: String
  /// Sends several events in one request; only without a template.
  private let batches: Bool
  private let server: AuthorizedHTTP
  let meter = TrafficMeter()
  private let store: Store
  private let clock: WallClock

  init(
    _ settings: UpstreamSettings, secretFile: String?, template: BodyTemplate?, contentType: String, batches: Bool,
    proxy: TunnelSettings?, store: Store, on loop: EventLoop
  ) throws {
    (self.secretFile, self.template, self.contentType, self.batches) = (secretFile, template, contentType, batches)
    (place, self.store, clock) = (settings.place, store, loop.wallClock)
    server = try AuthorizedHTTP(settings, allowsQuery: true, proxy: proxy, meter: meter, on: loop)
  }

  var namesBatches: Bool { batches }
  var bytesSent: UInt64 { server.bytesSent }
  var certificateExpiry: Int64? { server.certificateExpiry }

  /// A webhook keeps no count.
  func greet() async -> Greeting { .ready }

  func carry(_ batch: Batch) async -> Verdict {
    guard let first = batch.events.first, let last = batch.events.last else { return .acknowledged(through: 0) }
    let body = batches ? batch.encode(of: store, naming: true) : self.body(of: first)
    var request = HTTPRequest("POST", server.path.isEmpty ? "/" : server.path, body: body)
    request.headers.add("Content-Type", contentType)
    let numbers = batches && last.seq > first.seq ? "\(first.seq)-\(last.seq)" : "\(first.seq)"
    let content = Self.content(batch, batches)
    // The server may have an event of the previous epoch under that epoch's key.
    let epoch = store.identity.epochBefore(of: batches ? last.seq : first.seq) ?? store.epoch
    request.headers.add("Idempotency-Key", "\(store.gatewayID)/\(epoch)/\(numbers)/\(content)")
    if let file = secretFile {
      guard let secret = SecretFile.read(file) else {
        return .stopped(reason: "the secret file \(file) cannot be read")
      }
      request.headers.add("X-Meshpost-Signature", BodySignature.value(body, secret: Array(secret.utf8)))
    }
    // Without batches only the first event was sent; the rest waits for the next time.
    let through = batches ? batch.last : batch.events.count > 1 ? first.seq : batch.last
    do throws(Verdict) {
      // A page as the answer has no meaning, but it may be large.
      let answer = try await server.send(request, keepsBody: false)
      let verdict = RetryPolicy.webhookVerdict(answer, now: clock.seconds, through: through)
      return verdict.rewording { ServerAddress.hiding(server.path, in: $0) }
    } catch {
      return error
    }
  }

  /// A restored database uses a number again, and no webhook could notice it: so the content is a part of the key.
  static func content(_ batch: Batch, _ isWhole: Bool) -> String {
    let digests = (isWhole ? batch.events : Array(batch.events.prefix(1))).map { event in
      EventContent.digest(at: event.at, kind: event.kind, body: event.json ?? .null)
    }
    guard digests.count > 1 else { return digests.first ?? "" }
    return EventContent.digest(at: 0, kind: "", body: .object([("digests", .string(digests.joined()))]))
  }

  func test() async -> Verdict { await carry(Batch(testOf: store, at: Moment(clock))) }

  private func body(of event: JournalEvent) -> [UInt8] {
    if let template { return template.render(event, gateway: store.gatewayID) }
    return EventEnvelope.encode(event.withCopies(in: store), of: store)
  }

  func close() { server.close() }
}
