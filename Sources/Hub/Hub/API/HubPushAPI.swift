// SPDX-License-Identifier: MIT

import Hummingbird
import JSON
import UntrustedText

/// `/v1/push…`: browsers that get pushes. Only with `[web]`.
extension HubAPI {
  private static let deviceBytes = 64
  private static let mostChannels = 32

  /// By this a browser knows whether its pushes ended with a session or within it. Not enough to find the session by.
  private static func mark(_ token: String) -> String { String(HubStore.digest(token).prefix(16)) }

  /// The hub's key, and the browsers of the person.
  func pushes(_ call: Call) async throws -> Response {
    guard let web, case .session(let token) = call.grant.proof else { return Self.onlyPeople }
    guard !web.settings.pushServices.isEmpty else { return Self.json(["devices": [JSONObject]()]) }
    guard let key = try await web.pushes.ownKey() else {
      return Self.refusal(.serviceUnavailable, "the hub has no key for pushes: its log has the reason", retryAfter: 60)
    }
    let own = try await stores.readers.ask(call.holder) { try $0.pushSubscriptions(of: call.author) }
    return Self.json([
      "key": Base64.encodeForURL(key.point), "session": Self.mark(token), "devices": own.map(\.json),
    ])
  }

  func allPushes(_ call: Call) async throws -> Response {
    let all = try await stores.readers.ask(call.holder) { try $0.pushSubscriptions(of: nil) }
    return Self.json(["devices": all.map(\.json)])
  }

  func subscribe(_ call: Call) async throws -> Response {
    guard let web, case .session(let token) = call.grant.proof else { return Self.onlyPeople }
    guard stores.pushRations.take(call.author) else { return Self.tooManyChanges }
    guard let body = try await object(of: call) else { return Self.refusal(.badRequest, "expected a JSON object") }
    guard let endpoint = body["endpoint"]?.string,
      PushServices.origin(of: endpoint, among: web.settings.pushServices) != nil
    else {
      return Self.refusal(.badRequest, "endpoint: no address at a push service that this hub may use (push_services)")
    }
    guard let key = body["key"]?.string, let point = Base64.decodeFromURL(key), let auth = body["auth"]?.string,
      Base64.decodeFromURL(auth)?.count == PushEncryption.authBytes, let probe = PushKey.make(),
      probe.sharedSecret(with: point) != nil
    else { return Self.refusal(.badRequest, "key and auth: no keys of a subscription") }
    let device = body["device"]?.string ?? ""
    guard Visible.isLine(device, bytes: 1...Self.deviceBytes) else {
      return Self.refusal(.badRequest, "device: one line of 1 to \(Self.deviceBytes) bytes")
    }
    guard let wantsAlerts = (body["alerts"] ?? .bool(false)).bool else {
      return Self.refusal(.badRequest, "alerts: true or false")
    }
    let channels = (body["channels"] ?? .array([])).array?.map { $0.string ?? "" }
    guard let channels, channels.count <= Self.mostChannels,
      channels.allSatisfy({ (1...64).contains($0.utf8.count) })
    else {
      return Self.refusal(.badRequest, "channels: a list of at most \(Self.mostChannels) digests, or of \"*\"")
    }
    let wanted = PushSubscription(
      id: PushSubscription.id(of: endpoint), person: call.author, session: HubStore.digest(token), device: device,
      endpoint: endpoint, key: key, auth: auth, wantsAlerts: wantsAlerts, channels: channels)
    guard try await stores.writer.subscribe(wanted, at: HubClock.now) else {
      let (own, all) = (HubStore.mostPushesOfOne, HubStore.mostPushes)
      return Self.refusal(.conflict, "at most \(own) browsers of a person get pushes, and \(all) of all: remove one")
    }
    return Self.json(["id": wanted.id, "session": Self.mark(token)])
  }

  /// The person's own.
  func endPush(_ call: Call) async throws -> Response {
    guard case .session = call.grant.proof else { return Self.onlyPeople }
    guard stores.pushRations.take(call.author) else { return Self.tooManyChanges }
    return try await removePush(call, of: call.author) ? Self.json(["ok": true]) : Self.noSuchBrowser
  }

  /// Anybody's.
  func endAnyPush(_ call: Call) async throws -> Response {
    guard try await removePush(call, of: nil) else { return Self.noSuchBrowser }
    try await note("push", call, ["id": call.parameters.get("device") ?? "", "removed": true])
    return Self.json(["ok": true])
  }

  private func removePush(_ call: Call, of person: String?) async throws -> Bool {
    try await stores.writer.endPush(call.parameters.get("device") ?? "", of: person)
  }

  private static var noSuchBrowser: Response { refusal(.notFound, "no such browser") }
  private static var tooManyChanges: Response {
    refusal(
      .tooManyRequests, "too many changes of your browsers that get pushes",
      retryAfter: Int(HubStores.pushRation.interval.inSeconds))
  }
  private static var onlyPeople: Response {
    refusal(.forbidden, "only people who are signed in to the pages get pushes")
  }
}
