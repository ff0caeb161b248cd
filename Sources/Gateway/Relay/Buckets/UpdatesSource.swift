// SPDX-License-Identifier: MIT

import HTTP
import JSON
import UntrustedText

/// A server that has buckets.
protocol UpdatesSource: AnyObject {
  /// `nil`: the answer is missing or invalid. Throws problems that an operator can solve.
  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue?
  /// Gets the server's announcements about its buckets.
  var updates: BucketSync? { get set }
}

/// Source: docs/hub-protocol.md.
enum UpdatesQuestion: Equatable {
  /// `gateways`: in channels, only messages of these gateways are wanted; empty: those of all. The empty list is sent,
  /// too: a server keeps the last one.
  case state([String], gateways: [String])
  case page(bucket: String, from: CatchUp.Position, until: Int64?, limit: Int, most: Int64? = nil)

  var method: String {
    switch self {
    case .state: "getUpdatesState"
    case .page: "getUpdates"
    }
  }

  func write(to json: inout JSONWriter) {
    switch self {
    case .state(let buckets, let gateways):
      json.arrayField("buckets") { json in for bucket in buckets { json.value(bucket) } }
      json.arrayField("gateways") { json in for gateway in gateways { json.value(gateway) } }
    case .page(let bucket, let from, let until, let limit, let most):
      json.field("bucket", bucket)
      json.field("after", from.seq)
      json.field("at", from.at)
      json.field("since", from.since)
      json.field("until", until)
      json.field("limit", limit)
      json.field("most", most)
    }
  }

  var query: String {
    switch self {
    case .state(let buckets, let gateways):
      let only = gateways.map(PercentCoding.encode).joined(separator: ",")
      return "buckets=\(buckets.joined(separator: ","))&gateways=\(only)"
    case .page(let bucket, let from, let until, let limit, let most):
      var text = "bucket=\(bucket)&after=\(from.seq)&since=\(from.since)&limit=\(limit)"
      if let at = from.at { text += "&at=\(at)" }
      if let until { text += "&until=\(until)" }
      if let most { text += "&most=\(most)" }
      return text
    }
  }
}

extension CatchUp.Page {
  /// `nil`: invalid.
  init?(_ json: JSONValue) {
    if json["diverged"]?.bool == true {
      guard let resume = json["resume"]?.integer, (0...CatchUp.maxSeq).contains(resume) else { return nil }
      self = .diverged(resume: resume, at: json["resume_at"]?.count)
      return
    }
    guard let first = json["first"]?.integer, let last = json["last"]?.integer, let list = json["updates"]?.array,
      (1...CatchUp.maxSeq).contains(first), (0...CatchUp.maxSeq).contains(last)
    else { return nil }
    var updates: [CatchUp.Update] = []
    for value in list {
      guard let seq = value["seq"]?.integer, let at = value["at"]?.count, let id = value["id"]?.string,
        let body = value["body"], (1...CatchUp.maxSeq).contains(seq)
      else { return nil }
      updates.append(
        CatchUp.Update(
          seq: seq, at: at, id: id, body: body.bytes, age: value["age_ms"]?.count ?? 0, now: json["now"]?.count))
    }
    self = .updates(
      updates, first: first, last: last, lastAt: json["last_at"]?.count, more: json["more"]?.bool ?? false,
      leftOut: CatchUp.LeftOut(json["left_out"]))
  }
}

extension CatchUp.LeftOut {
  private static let mostNamed = 16

  /// `nil`: the hub does not report it.
  init?(_ json: JSONValue?) {
    guard let count = json?["count"]?.integer, (0...CatchUp.maxSeq).contains(count) else { return nil }
    let names = json?["gateways"]?.array?.prefix(Self.mostNamed).compactMap(\.string) ?? []
    self.init(count: count, gateways: names.filter { Visible.isLine($0, bytes: 1...64) })
  }
}
