// SPDX-License-Identifier: MIT

import HTTP
import JSON
import UntrustedText

/// Pushes news to the browsers of people who asked for it: RFC 8030, 8291, 8292. Its positions are in the database: what was pushed before a restart is not
/// pushed again. If a hub ends between the answer of a push service and its commit, the push comes twice, and replaces itself by its topic and number.
actor PushSender {
  /// News within this time is one push.
  private static let pause: Duration = .seconds(5)
  /// What a device that is off gets when it is on again, and the age from which news is none any more. Milliseconds.
  static let newsLasts: Int64 = 6 * 3_600_000
  /// Messages that one look reads for a browser.
  static let mostMessages = 5000
  private static let pushesAtOnce = 8
  /// Of one look; those who wait the longest come first.
  private static let mostAttempts = 40
  /// Milliseconds between two pushes to one browser.
  static let leastBetween: Int64 = 10_000
  /// Milliseconds for the attempts of a look: afterwards another hub may try.
  private static let attemptLasts: Int64 = 180_000
  private static let firstRetry: Int64 = 30_000
  private static let longestRetry: Int64 = 3_600_000
  /// The longest pause that a push service may ask for.
  static let longestWanted: Int64 = 86_400_000
  /// A subscription that fails for so long ends, after so many attempts: a clock that was set ends none.
  static let givesUp: Int64 = 3 * 86_400_000
  static let leastFailures: Int64 = 60
  /// How far subscriptions are for which there was nothing is stored this often.
  private static let keepsEvery: Int64 = 60_000

  /// Milliseconds since an instant.
  typealias Elapsed = @Sendable (ContinuousClock.Instant) -> Int64
  typealias Post = @Sendable (OutgoingRequest) async -> Result<HTTPResponse, OutgoingRequest.Failure>

  private let stores: HubStores
  private let settings: HubWebSettings
  private let most: Int
  private let post: Post
  private let elapsed: Elapsed
  /// When the last look began.
  private var begun = ContinuousClock.now
  private var key: PushKey?
  private let keyLog = ThrottledLog(HubLog.write)
  /// How far it has looked for subscriptions for which there was nothing, by their ids, and when that was last stored.
  private var looked: [String: (message: Int64, alert: Int64)] = [:]
  private var keptAt: Int64 = 0
  /// The newest alert at the last look. On a server, alerts may be committed in another order than that of their numbers, but not this much later.
  private var alertsThrough: Int64?
  private var oldNews = OldNews()
  /// Push services without an answer in this look: their other browsers wait for the next one, so that those of others need not.
  private var silent: Set<String> = []

  init(
    _ stores: HubStores, _ settings: HubWebSettings, most: Int = PushSender.mostMessages,
    post: @escaping Post = PushSender.overNetwork,
    elapsed: @escaping Elapsed = { Int64((ContinuousClock.now - $0).inSeconds * 1000) }
  ) {
    (self.stores, self.settings, self.most, self.post, self.elapsed) = (stores, settings, most, post, elapsed)
  }

  static let overNetwork: Post = { request in
    do throws(OutgoingRequest.Failure) {
      return .success(try await request.send())
    } catch {
      return .failure(error)
    }
  }

  /// Returns when it is cancelled, after the attempts under way.
  func run() async {
    while !Task.isCancelled {
      await look(at: HubClock.now)
      // `try?`: it is cancelled while it sleeps.
      try? await Task.sleep(for: Self.pause)
    }
  }

  /// Looks once for news, and pushes it.
  func look(at now: Int64) async {
    begun = .now
    do {
      try await push(at: now)
    } catch {
      // The probe reports what is wrong with the database: positions stay as they are.
      HubLog.debug("pushes: \(error)")
    }
  }

  /// What a browser gets in one attempt, and how far it is then.
  private struct Attempt: Sendable {
    let one: PushSubscription
    let message: Int64
    let alert: Int64
    /// How many late news it has then.
    let late: Int
    let contents: [PushContent]
  }

  /// Messages that a browser wants: the same for many.
  private struct Wanted: Hashable, Sendable {
    let after: Int64
    let through: Int64
    let late: [Int64]
    let channels: [String]
  }

  private func push(at now: Int64) async throws {
    let all = try await stores.monitor.livePushes(since: now - settings.sessionDays * 86_400_000, at: now)
    stores.metrics.pushes(subscriptions: all.count, failing: all.count { $0.failures > 0 })
    let newestAlert = try await stores.monitor.newestAlert()
    let alertsUntil = min(alertsThrough ?? 0, newestAlert)
    alertsThrough = newestAlert
    // A clock that was set back keeps no push waiting.
    let due = all.filter { $0.nextAt <= now || $0.nextAt > now + 2 * Self.longestWanted }
    let ids = Set(due.map(\.id))
    looked = looked.filter { ids.contains($0.key) }
    oldNews.keep(only: Set(all.map(\.id)))
    guard !due.isEmpty, let key = try await ownKey() else { return }
    let newest = try await stores.monitor.newestPosition()
    let places = due.map { one -> (message: Int64, alert: Int64) in
      // A database that was replaced by an older copy may have less than was looked at.
      guard let seen = looked[one.id] else { return (one.message, one.alert) }
      return (
        seen.message <= newest ? max(one.message, seen.message) : one.message,
        seen.alert <= newestAlert ? max(one.alert, seen.alert) : one.alert
      )
    }
    try await lookForLateNews(through: newest, at: now)
    var reaches: [Int64: Int64] = [:]
    for after in Set(places.map { $0.message }) {
      reaches[after] = try await stores.monitor.pushReach(after: after, through: newest, most: most)
    }
    let wishes = zip(due, places).map { one, place in
      Wanted(
        after: place.message, through: reaches[place.message] ?? newest,
        late: oldNews.news(for: one.id, through: place.message), channels: one.channels)
    }
    var messages: [Wanted: PushContent] = [:]
    for wish in Set(wishes) {
      messages[wish] = try await stores.monitor.pushedMessages(
        after: wish.after, through: wish.through, late: wish.late, since: now - Self.newsLasts, now: now,
        channels: wish.channels)
    }
    var alerts: [Int64: PushContent] = [:]
    for after in Set(places.map { $0.alert }) {
      alerts[after] = try await stores.monitor.pushedAlerts(after: after, through: alertsUntil)
    }
    var (attempts, idle) = ([Attempt](), [PushSubscription]())
    for (index, one) in due.enumerated() {
      let (place, wish) = (places[index], wishes[index])
      let contents = [messages[wish], one.wantsAlerts ? alerts[place.alert] : nil].compactMap { $0 }
      let alert = max(place.alert, alertsUntil)
      guard contents.isEmpty else {
        looked[one.id] = nil
        // If it fails, the next one begins behind what was looked at.
        var next = one
        (next.message, next.alert) = (place.message, place.alert)
        attempts.append(
          Attempt(one: next, message: wish.through, alert: alert, late: oldNews.count, contents: contents))
        continue
      }
      looked[one.id] = (wish.through, alert)
      oldNews.told(one.id, through: oldNews.count)
      var next = one
      (next.message, next.alert) = (wish.through, alert)
      if next != one { idle.append(next) }
    }
    if now - keptAt >= Self.keepsEvery || now < keptAt {
      try await stores.writer.skipPushes(idle)
      keptAt = now
    }
    await push(attempts.sorted { $0.one.nextAt < $1.one.nextAt }, key, at: now)
  }

  /// Some at a time.
  private func push(_ attempts: [Attempt], _ key: PushKey, at now: Int64) async {
    var (rest, made) = (attempts, 0)
    silent = []
    while made < Self.mostAttempts, !Task.isCancelled {
      if !silent.isEmpty { rest.removeAll { service(of: $0.one).map { silent.contains($0) } ?? false } }
      let some = Array(rest.prefix(Self.pushesAtOnce))
      guard !some.isEmpty else { return }
      rest.removeFirst(some.count)
      made += some.count
      await withTaskGroup(of: Void.self) { group in
        for attempt in some { group.addTask { await self.make(attempt, key, at: now) } }
      }
    }
  }

  private func make(_ attempt: Attempt, _ key: PushKey, at now: Int64) async {
    let one = attempt.one
    do {
      guard try await stores.writer.takePush(one, until: now + Self.attemptLasts) else { return }
      let topics = attempt.contents.map(\.topic)
      var next = one
      if !topics.contains(.messages) { tookMessages(attempt, &next) }
      if !topics.contains(.alerts) { next.alert = attempt.alert }
      var outcome = PushOutcome.sent
      for content in attempt.contents where outcome == .sent {
        outcome = await send(content, to: one, key, at: now)
        stores.metrics.pushed(outcome.kind)
        guard outcome == .sent else { continue }
        switch content.topic {
        case .messages: tookMessages(attempt, &next)
        case .alerts: next.alert = attempt.alert
        }
        // Whoever stops the hub waits for one push at most: the other one is made after the next start.
        if Task.isCancelled { break }
      }
      // A push service may take long: pauses begin when it has answered.
      guard let kept = Self.after(outcome, next, at: now + elapsed(begun)) else {
        _ = try await stores.writer.endPush(one.id)
        HubLog.write(.info, "pushes to a browser of \(one.person) have ended: \(outcome.words)")
        return
      }
      try await stores.writer.keepPush(kept)
    } catch {
      // It is tried again when the time of the attempt is over.
      HubLog.debug("pushes: \(error)")
    }
  }

  private func tookMessages(_ attempt: Attempt, _ next: inout PushSubscription) {
    next.message = attempt.message
    oldNews.told(next.id, through: attempt.late)
  }

  /// Looks for messages that were old when they were looked at, and that are news by a later report.
  private func lookForLateNews(through newest: Int64, at now: Int64) async throws {
    let since = now - Self.newsLasts
    let found = try await stores.monitor.oldNews(after: oldNews.through ?? 0, through: newest, since: since, now: now)
    let late = try await stores.monitor.news(among: oldNews.old, since: since, now: now)
    oldNews.becameNews(late)
    oldNews.looked(through: newest, found: found)
  }

  /// The subscription after an attempt; `nil`: it ends.
  static func after(_ outcome: PushOutcome, _ next: PushSubscription, at now: Int64) -> PushSubscription? {
    var kept = next
    switch outcome {
    case .gone: return nil
    case .sent:
      (kept.pushedAt, kept.nextAt) = (now, now + leastBetween)
      (kept.failures, kept.failingSince, kept.error) = (0, nil, nil)
    case .failed(let words, let wanted):
      let since = min(next.failingSince ?? now, now)
      guard now - since < givesUp || next.failures + 1 < leastFailures else { return nil }
      let pause = min(firstRetry << min(next.failures, 10), longestRetry)
      kept.nextAt = now + max(pause, min(wanted ?? 0, longestWanted))
      (kept.failures, kept.failingSince, kept.error) = (next.failures + 1, since, words)
    }
    return kept
  }

  private func send(
    _ content: PushContent, to one: PushSubscription, _ key: PushKey, at now: Int64
  ) async -> PushOutcome {
    // The list may be another one than when the browser subscribed.
    guard let origin = service(of: one) else {
      return .failed("its push service is not in push_services", retryAfter: nil)
    }
    let salt = (0..<16).map { _ in UInt8.random(in: 0...255) }
    guard let point = Base64.decodeFromURL(one.key), let auth = Base64.decodeFromURL(one.auth),
      let once = PushKey.make(),
      let body = PushEncryption.encrypt(content.json, for: point, auth: auth, key: once, salt: salt),
      let proof = PushEncryption.proof(key, audience: origin, contact: settings.url, at: now)
    else { return .failed("it cannot be encrypted", retryAfter: nil) }
    let headers: HTTPHeaders = [
      "Authorization": proof, "Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream",
      "TTL": "\(Self.newsLasts / 1000)", "Topic": content.topic.rawValue,
      "Urgency": content.topic == .alerts ? "high" : "normal",
    ]
    let request = OutgoingRequest(
      method: "POST", url: one.endpoint, headers: headers, body: body, ignoresBody: true, authorities: nil)
    let result = await post(request)
    if case .failure = result { silent.insert(origin) }
    return PushOutcome(result)
  }

  /// The origin of its push service, if that is in the list.
  private func service(of one: PushSubscription) -> String? {
    PushServices.origin(of: one.endpoint, among: settings.pushServices)
  }

  /// Made at first use.
  func ownKey() async throws -> PushKey? {
    if let key { return key }
    var text = try await stores.monitor.storedPushKey()
    if text == nil, let made = PushKey.make() {
      text = try await stores.writer.pushKey(made: Base64.encode(made.der))
    }
    key = text.flatMap { Base64.decode($0) }.flatMap { PushKey(der: $0) }
    if key == nil { keyLog.say("the key of pushes cannot be read or made: there are none") }
    return key
  }
}

/// How an attempt ended.
enum PushOutcome: Sendable, Equatable {
  case sent
  /// The push service does not know the subscription any more.
  case gone
  /// `retryAfter`: what the push service asks for, in milliseconds.
  case failed(String, retryAfter: Int64?)

  init(_ result: Result<HTTPResponse, OutgoingRequest.Failure>) {
    switch result {
    case .failure(let failure): self = .failed("no answer\(failure.words)".cut(toBytes: 200), retryAfter: nil)
    case .success(let response):
      switch response.status {
      case 200..<300: self = .sent
      case 404, 410: self = .gone
      default:
        let seconds = response.headers["Retry-After"].flatMap(Self.seconds)
        self = .failed("status \(response.status)", retryAfter: seconds.map { $0 * 1000 })
      }
    }
  }

  /// A number that is too large asks for the longest pause. A date is not understood.
  private static func seconds(_ words: String) -> Int64? {
    guard !words.isEmpty, words.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
      return nil
    }
    return min(Int64(words) ?? .max, PushSender.longestWanted / 1000)
  }

  var kind: HubMetrics.Push {
    switch self {
    case .sent: .sent
    case .gone: .gone
    case .failed: .failed
    }
  }

  var words: String {
    switch self {
    case .sent: "sent"
    case .gone: "the push service does not know it any more"
    case .failed(let words, _): "it has failed for three days, at last: \(words)"
    }
  }
}
