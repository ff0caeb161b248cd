// SPDX-License-Identifier: MIT

import JSON
import Testing

/// Impossible numbers from all senders.
@Suite struct AbsurdNumbersTests {
  private static let numbers = [
    "-9223372036854775808", "9223372036854775807", "9007199254740993", "9007199254740992", "-1", "1e308", "-1e308",
    "4294967296", String(repeating: "9", count: 400),
  ]

  @Test func `the gateway survives absurd numbers in requests at the control socket`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("chan r1 0 one")
    try rig.until("the message") { rig.hub.texts == ["one"] }
    let queries = [
      "messages?limit=N", "messages?after=N", "messages?before=N", "messages?since=N", "messages?until=N",
      "messages?since=N&until=N&after=N&before=N&limit=N&q=one", "messages?q=one&before=N", "contacts?heard=N",
      "journal?limit=N", "journal?after=N", "journal?after=N&limit=N", "events?after=N", "outgoing?limit=N",
      "readings?limit=N", "documents?after=N",
    ]
    let bodies = [
      ("send", #"{"to":"Public","text":"x","expires_s":N,"priority":N}"#), ("react", #"{"message":N,"emoji":"👍"}"#),
      ("contacts/path", #"{"contact":"r1","path":"","hash_bytes":N}"#),
      ("node/trace", #"{"node":"r1","path":"aa","hash_bytes":N}"#),
      ("radio/set", #"{"frequency":N,"power":N,"sf":N}"#),
      ("radio/set", #"{"position":"N,N"}"#), ("radio/set", #"{"path-hash-bytes":"N","rx-delay":"N"}"#),
      (
        "contacts/put",
        #"{"kind":"contact","key":"\#(String(repeating: "ab", count: 32))","name":"x","type":N,"flags":N,"latitude":N,"longitude":N,"last_advert":N,"path_hash_bytes":N,"path":""}"#
      ),
      ("channels/put", #"{"kind":"channel","slot":N,"name":"x","secret":"00112233445566778899aabbccddeeff"}"#),
      ("documents", #"{"key":"settings/airtime_per_hour_s","value":N}"#),
      ("contacts/add", #"{"key":"\#(String(repeating: "cd", count: 32))","name":"x","type":N}"#),
      ("upstreams/add", #"{"name":"x","url":"http://127.0.0.1:1","timeout_s":N,"batch_bytes":N,"keep_alive_s":N}"#),
    ]
    for number in Self.numbers {
      for query in queries { _ = try rig.ask("GET", "/v1/" + query.replacing("N", with: number)) }
      for (path, body) in bodies { _ = try rig.ask("POST", "/v1/\(path)", body.replacing("N", with: number)) }
      #expect(try rig.status()["gateway"] != nil, "\(number)")
    }
    rig.air("chan r1 0 two")
    try rig.until("another message") { rig.hub.texts == ["one", "two"] }
  }
}
