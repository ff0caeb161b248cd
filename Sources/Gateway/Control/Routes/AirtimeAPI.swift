// SPDX-License-Identifier: MIT

import ControlShapes
import Delivery
import HTTP
import JSON
import Store

/// `/v1/airtime`: what the air time was used for, by the hour, and how busy the channel is.
struct AirtimeAPI {
  private static let usualHours: Int64 = 24

  let dependencies: ControlAPI.Dependencies

  func show(_ request: HTTPRequest) throws -> Answer {
    let most = Store.airtimeDays * 24
    let count = min(max(ControlAPI.number(request, "hours") ?? Self.usualHours, 1), most)
    let first = Store.hour(of: dependencies.synchronizer.now) - count + 1
    var hours: [(hour: Int64, uses: [(purpose: String, entry: Store.AirtimeEntry)])] = []
    try dependencies.store.eachAirtimeHour(from: first) { hour, purpose, entry in
      if hours.last?.hour != hour { hours.append((hour, [])) }
      hours[hours.count - 1].uses.append((purpose, entry))
    }
    let status = dependencies.messaging.messenger.status
    return .json { json in
      let row = Shape.Airtime()
      json.field(row.usedMs, status.airtime.used)
      json.field(row.limitMs, status.airtime.limit)
      json.field(row.channelUsePercent, (status.channel.use * 10).rounded() / 10)
      json.field(row.busyPercent, Int64(status.channel.limit))
      json.field(row.waits, status.channel.waits)
      json.objects(row.hours, hours) { Self.write($0.hour, $0.uses, to: &$1) }
    }
  }

  private static func write(
    _ hour: Int64, _ uses: [(purpose: String, entry: Store.AirtimeEntry)], to json: inout JSONWriter
  ) {
    let row = Shape.AirtimeHour()
    let sent = uses.filter { $0.purpose != AirtimePurpose.heard.rawValue }
    let heard = uses.first { $0.purpose == AirtimePurpose.heard.rawValue }?.entry
    json.field(row.at, hour * 3_600_000)
    json.field(row.sentMs, sent.reduce(0) { $0 + $1.entry.milliseconds })
    json.objects(row.purposes, sent) { use, json in
      json.field(Shape.AirtimeUse().purpose, use.purpose)
      json.field(Shape.AirtimeUse().ms, use.entry.milliseconds)
      json.field(Shape.AirtimeUse().packets, use.entry.packets)
    }
    json.field(row.heardMs, heard?.milliseconds ?? 0)
    json.field(row.heardPackets, heard?.packets ?? 0)
  }
}
