// SPDX-License-Identifier: MIT

/// Messages, each once, and who heard them. The first report of a message does not say for ever when that was: one that knows better takes its
/// place, so that no gateway whose clock is wrong, or that lies, hides from readers and from other gateways what others heard in time.
extension HubStore {
  /// What is told later by less changes nothing: milliseconds.
  static let better: Int64 = 60_000

  /// A message as one gateway heard it, and when that came.
  struct OneHearing {
    let heard: PreparedEvent.Heard
    let gateway: String
    let arrived: Int64

    /// Never later than it came, whatever a clock says.
    var at: Int64 { min(heard.at ?? arrived, arrived) }
    var sent: Int64 { min(heard.sent, arrived) }
    var hearer: HearerOfMessage { HearerOfMessage(identity: heard.identity, gateway: gateway) }

    init(_ heard: PreparedEvent.Heard, from batch: PreparedBatch) {
      (self.heard, gateway, arrived) = (heard, batch.gateway, batch.at)
    }
  }

  /// Who heard which message.
  struct HearerOfMessage: Hashable {
    let identity: String
    let gateway: String
  }

  /// Of each message the report that tells best when it was sent: the first one, unless another has it later by more than a little. In the order in
  /// which the messages came.
  struct HeardBest {
    private(set) var hearings: [OneHearing] = []
    private var places: [String: Int] = [:]

    mutating func add(_ heard: PreparedEvent.Heard, from batch: PreparedBatch) { add(OneHearing(heard, from: batch)) }

    mutating func add(_ hearing: OneHearing) {
      if let place = places[hearing.heard.identity] {
        if hearing.sent > hearings[place].sent + HubStore.better { hearings[place] = hearing }
      } else {
        places[hearing.heard.identity] = hearings.count
        hearings.append(hearing)
      }
    }
  }

  /// `row` gets the identity of each message that was not here, or that is told better now; `hearer` the messages that a `wanted` gateway had not
  /// told of.
  func heardCalls(
    _ batches: [PreparedBatch], wanted: Set<String>, hearer: @escaping (HearerOfMessage) -> Void,
    _ row: @escaping (any HubRow) -> Void
  ) -> [HubCall] {
    var (best, hearers) = (HeardBest(), [OneHearing]())
    for batch in batches {
      for event in batch.events {
        guard case .heard(let heard) = event.effect else { continue }
        best.add(heard, from: batch)
        hearers.append(OneHearing(heard, from: batch))
      }
    }
    let messages = best.hearings
    let ofWanted = wanted.isEmpty ? [] : hearers.filter { wanted.contains($0.gateway) }
    let isNew = "NOT EXISTS (SELECT 1 FROM heard h WHERE h.message = m.position AND h.gateway = v.gateway)"
    // Who knows nothing better than others is not asked about.
    let knowing = messages.filter { $0.sent > 0 }
    func least(_ value: String) -> String { "CASE WHEN \(value) < arrived THEN \(value) ELSE arrived END" }
    let (change, condition) = (
      "UPDATE messages SET at = \(least("v.at")), sent = \(least("v.sent"))",
      "identity = v.identity AND \(least("v.sent")) > messages.sent + \(Self.better)"
    )
    return [
      HubCall(
        into: "messages",
        [("position", database.nextPosition)] + Self.same("identity", "channel", "at", "body", "arrived", "sent"),
        order: "v.identity", "ON CONFLICT(identity) DO NOTHING", tells: ["identity"],
        [
          ("place", .integers(messages.indices.map { Int64($0) })),
          ("identity", .texts(messages.map(\.heard.identity))), ("channel", .texts(messages.map(\.heard.channel))),
          ("at", .integers(messages.map(\.at))), ("body", .texts(messages.map(\.heard.body))),
          ("arrived", .integers(messages.map(\.arrived))), ("sent", .integers(messages.map(\.sent))),
        ], row: row),
      HubCall(
        "\(change) FROM @rows WHERE messages.\(condition) RETURNING messages.identity",
        one: "\(change) WHERE \(condition)", tells: ["identity"],
        [
          ("identity", .texts(knowing.map(\.heard.identity))), ("at", .integers(knowing.map(\.at))),
          ("sent", .integers(knowing.map(\.sent))),
        ], row: row),
      HubCall(
        "SELECT m.identity, v.gateway FROM @rows JOIN messages m ON m.identity = v.identity WHERE \(isNew)",
        one: "SELECT m.identity, v.gateway FROM messages m WHERE m.identity = v.identity AND \(isNew)",
        [
          ("identity", .texts(ofWanted.map(\.heard.identity))), ("gateway", .texts(ofWanted.map(\.gateway))),
        ]
      ) { hearer(HearerOfMessage(identity: $0.text(0), gateway: $0.text(1))) },
      HubCall(
        """
        INSERT INTO heard(message, gateway, at, body)
        SELECT m.position, v.gateway, v.at, v.body FROM @rows JOIN messages m ON m.identity = v.identity WHERE true
        ON CONFLICT(message, gateway) DO NOTHING
        """,
        one: """
          INSERT INTO heard(message, gateway, at, body)
          VALUES ((SELECT position FROM messages WHERE identity = v.identity), v.gateway, v.at, v.body)
          ON CONFLICT(message, gateway) DO NOTHING
          """,
        [
          ("identity", .texts(hearers.map(\.heard.identity))), ("gateway", .texts(hearers.map(\.gateway))),
          ("at", .integers(hearers.map(\.at))), ("body", .texts(hearers.map(\.heard.report))),
        ]),
    ]
  }

  // MARK: For those who take what some heard

  /// Each message once, by whichever of those that a gateway named told of it first; and again by one that has it later by more than a little, like what
  /// is told to all. However many heard it, the list holds as many messages.
  func heardLists(_ hearings: [OneHearing], _ work: Work) -> [BucketPlace: [Update]] {
    var lists: [String: HeardBest] = [:]
    for hearing in hearings {
      guard let channel = hearing.heard.channel else { continue }
      for gateway in work.wanted[hearing.gateway] ?? []
      where work.known.contains(GatewayChannel(gateway: gateway, channel: channel)) {
        let before = work.listed[HearerOfMessage(identity: hearing.heard.identity, gateway: gateway)]
        if let before, hearing.sent <= before || hearing.sent - before <= Self.better { continue }
        lists[gateway, default: HeardBest()].add(hearing)
      }
    }
    var updates: [BucketPlace: [Update]] = [:]
    for (gateway, best) in lists {
      updates[BucketPlace(scope: gateway, name: Self.heardBucket)] = best.hearings.compactMap { hearing in
        hearing.heard.update.map {
          Update(identity: hearing.heard.identity, body: $0, source: hearing.gateway)
        }
      }
    }
    return updates
  }

  /// Which of these messages one of those that a gateway named has told of before, and when they may have been sent by what is in its list. What has left
  /// that since is not told again.
  func listedCall(_ work: Work, _ row: @escaping (HearerOfMessage, Int64) -> Void) -> HubCall {
    var asked: Set<HearerOfMessage> = []
    for batch in work.accepted {
      for case .heard(let heard) in batch.events.map(\.effect) where heard.update != nil {
        for gateway in work.wanted[batch.gateway] ?? [] {
          asked.insert(HearerOfMessage(identity: heard.identity, gateway: gateway))
        }
      }
    }
    let rows = Array(asked)
    let told = """
      LEFT JOIN updates u ON u.gateway = v.gateway AND u.gateway <> '' AND u.bucket = '\(Self.heardBucket)'
      AND u.id = v.identity AND u.body <> ''
      """
    // Those whom a gateway named are few; those who heard a message may be many.
    let isHeard = """
      EXISTS (SELECT 1 FROM wanted_hearers w CROSS JOIN heard h
      WHERE w.gateway = v.gateway AND h.message = m.position AND h.gateway = w.hearer)
      """
    return HubCall(
      """
      SELECT v.identity, v.gateway, u.at, u.body FROM @rows JOIN messages m ON m.identity = v.identity \(told)
      WHERE \(isHeard)
      """,
      one:
        "SELECT v.identity, v.gateway, u.at, u.body FROM messages m \(told) WHERE m.identity = v.identity AND \(isHeard)",
      [("identity", .texts(rows.map(\.identity))), ("gateway", .texts(rows.map(\.gateway)))]
    ) {
      let place = HearerOfMessage(identity: $0.text(0), gateway: $0.text(1))
      guard let body = $0.textIfAny(3), let sent = PreparedEvent.Heard.sent(byUpdate: body) else {
        return row(place, .max)
      }
      // Never later than it came, whatever a clock says.
      row(place, min(sent, $0.integer(2)))
    }
  }

  /// Of the gateways that take what wanted ones hear: which of these messages' channels they know.
  func knownChannelsCall(_ work: Work, _ row: @escaping (GatewayChannel) -> Void) -> HubCall {
    var asked: Set<GatewayChannel> = []
    for batch in work.accepted {
      for case .heard(let heard) in batch.events.map(\.effect) {
        guard let channel = heard.channel else { continue }
        for gateway in work.wanted[batch.gateway] ?? [] {
          asked.insert(GatewayChannel(gateway: gateway, channel: channel))
        }
      }
    }
    let rows = Array(asked)
    return HubCall(
      """
      SELECT c.gateway, c.channel FROM @rows JOIN gateway_channels c ON c.gateway = v.gateway AND c.channel = v.channel
      """, [("gateway", .texts(rows.map(\.gateway))), ("channel", .texts(rows.map(\.channel)))]
    ) { row(GatewayChannel(gateway: $0.text(0), channel: $0.text(1))) }
  }
}
