// SPDX-License-Identifier: MIT

/// Messages, each stored once, and the gateways that heard them. A later report with a better time replaces the first one: so a gateway with a wrong
/// clock, or a lying gateway, does not hide messages from readers and other gateways.
extension HubStore {
  /// A report is better if its time is later by more than this many milliseconds.
  static let better: Int64 = 60_000

  /// A message as one gateway heard it, and when the report arrived.
  struct MessageReport {
    let heard: PreparedEvent.Heard
    let gateway: String
    let arrived: Int64

    /// At most the arrival, also with a gateway's clock that is ahead; and not before 1970, so that all messages are in few periods of the index of times.
    var at: Int64 { max(0, min(heard.at ?? arrived, arrived)) }
    var sent: Int64 { min(heard.sent, arrived) }
    var hearer: MessageHearer { MessageHearer(identity: heard.identity, gateway: gateway) }

    init(_ heard: PreparedEvent.Heard, from batch: PreparedBatch) {
      (self.heard, gateway, arrived) = (heard, batch.gateway, batch.at)
    }
  }

  struct MessageHearer: Hashable {
    let identity: String
    let gateway: String
  }

  /// The best report of each message, in the order of arrival: the first one, unless another one's sending time is later by more than `better`.
  struct BestReports {
    private(set) var hearings: [MessageReport] = []
    private var places: [String: Int] = [:]

    mutating func add(_ hearing: MessageReport) {
      if let place = places[hearing.heard.identity] {
        if hearing.sent > hearings[place].sent + HubStore.better { hearings[place] = hearing }
      } else {
        places[hearing.heard.identity] = hearings.count
        hearings.append(hearing)
      }
    }
  }

  /// The calls that store messages and their hearers. `row` gets the identity of each message that is new or has a better time now; `hearer` gets the
  /// new reports of named hearers; `unsettled`: see `findingUnsettled`.
  func storingMessages(
    _ work: IngestWork, hearer: @escaping (MessageHearer) -> Void,
    unsettled: @escaping (MessageHearer, _ isFirst: Bool, ListedTimes) -> Void, _ row: @escaping (any HubRow) -> Void
  ) -> [HubCall] {
    var (best, hearers) = (BestReports(), [MessageReport]())
    for batch in work.accepted {
      for event in batch.events {
        guard case .heard(let heard) = event.effect, !work.isLeftOut(event, of: batch) else { continue }
        let report = MessageReport(heard, from: batch)
        best.add(report)
        hearers.append(report)
      }
    }
    let messages = best.hearings
    let ofWanted = hearers.filter { work.named.takers[$0.gateway] != nil }
    let isNew = "NOT EXISTS (SELECT 1 FROM heard h WHERE h.message = m.position AND h.gateway = v.gateway)"
    // A report without a sending time is never better.
    let knowing = messages.filter { $0.sent > 0 }
    func least(_ value: String) -> String { "CASE WHEN \(value) < arrived THEN \(value) ELSE arrived END" }
    let (change, condition) = (
      """
      UPDATE messages SET at = \(least("v.at")), sent = \(least("v.sent")),
      settled = coalesce(messages.settled, messages.sent)
      """,
      "identity = v.identity AND \(least("v.sent")) > messages.sent + \(Self.better)"
    )
    return [
      HubCall(
        into: "messages",
        [
          "place": messages.indices.map { Int64($0) }, "identity": messages.map(\.heard.identity),
          "channel": messages.map(\.heard.channel), "at": messages.map(\.at), "body": messages.map(\.heard.body),
          "arrived": messages.map(\.arrived), "sent": messages.map(\.sent),
        ], "ON CONFLICT(identity) DO NOTHING", order: "v.identity", position: database.nextPosition,
        returning: ["identity"], row: row),
      HubCall(
        "\(change) FROM @rows WHERE messages.\(condition) RETURNING messages.identity",
        ["identity": knowing.map(\.heard.identity), "at": knowing.map(\.at), "sent": knowing.map(\.sent)], row: row),
      findingUnsettled(hearers, unsettled),
      HubCall(
        "SELECT m.identity, v.gateway FROM @rows JOIN messages m ON m.identity = v.identity WHERE \(isNew)",
        ["identity": ofWanted.map(\.heard.identity), "gateway": ofWanted.map(\.gateway)]
      ) { hearer(MessageHearer(identity: $0.text(0), gateway: $0.text(1))) },
      HubCall(
        """
        INSERT INTO heard(message, gateway, at, body)
        SELECT m.position, v.gateway, v.at, v.body FROM @rows JOIN messages m ON m.identity = v.identity WHERE true
        ON CONFLICT(message, gateway) DO NOTHING
        """,
        [
          "identity": hearers.map(\.heard.identity), "gateway": hearers.map(\.gateway), "at": hearers.map(\.at),
          "body": hearers.map(\.heard.report),
        ]),
    ]
  }

  /// Finds the channels of these messages that are known to the gateways which take them from named hearers.
  func findingKnownChannels(_ work: IngestWork, _ row: @escaping (GatewayChannel) -> Void) -> HubCall {
    var asked: Set<GatewayChannel> = []
    for batch in work.accepted {
      for case .heard(let heard) in batch.events.map(\.effect) {
        guard let channel = heard.channel else { continue }
        for gateway in work.named.takers(of: batch.gateway) {
          asked.insert(GatewayChannel(gateway: gateway, channel: channel))
        }
      }
    }
    let rows = Array(asked)
    return HubCall(
      """
      SELECT c.gateway, c.channel FROM @rows JOIN gateway_channels c ON c.gateway = v.gateway AND c.channel = v.channel
      """, ["gateway": rows.map(\.gateway), "channel": rows.map(\.channel)]
    ) { row(GatewayChannel(gateway: $0.text(0), channel: $0.text(1))) }
  }
}
