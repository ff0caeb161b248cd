// SPDX-License-Identifier: MIT

import Companion

extension Described {
  static func frame(_ frame: RadioFrame) throws -> Fields {
    switch frame {
    case .reply(let reply): try self.reply(reply).merging(["code": Int(reply.encode()[0])]) { old, _ in old }
    case .push(let push): try self.push(push).merging(["code": Int(push.encode()[0])]) { old, _ in old }
    }
  }

  private static func path(_ path: ReceivedPath) -> Fields {
    guard !path.isDirect else { return ["raw": 255, "route": "direct"] }
    return length(PathLength(raw: path.raw)).merging(["route": "flood"]) { old, _ in old }
  }

  private static func reply(_ reply: Reply) throws -> Fields {
    switch reply {
    case .ok: return ["kind": "OK"]
    case .error(let error): return ["kind": "ERR", "error": error.map { Int($0.rawValue) } as Any]
    case .contactsStart(let total): return ["kind": "CONTACTS_START", "total": Int(total)]
    case .contact(let contact): return contact_(contact, kind: "CONTACT")
    case .endOfContacts(let time): return ["kind": "END_OF_CONTACTS", "lastmod": Int(time)]
    case .selfInfo(let info): return selfInfo(info)
    case .sent(let sent):
      return [
        "kind": "SENT", "flood": sent.flood, "ack_or_tag": sent.ackOrTag.hex, "timeout_ms": Int(sent.suggestedTimeout),
      ]
    case .message(let message): return self.message(message, code: reply.encode()[0])
    case .currentTime(let time): return ["kind": "CURR_TIME", "time": Int(time)]
    case .noMoreMessages: return ["kind": "NO_MORE_MESSAGES"]
    case .exportContact(let card):
      return ["kind": "EXPORT_CONTACT", "card": Hex.string(card), "packet": try packet(card)]
    case .battery(let battery):
      return [
        "kind": "BATT_AND_STORAGE", "battery_mv": Int(battery.millivolts),
        "used_kib": battery.usedKibibytes.map { Int($0) } as Any,
        "total_kib": battery.totalKibibytes.map { Int($0) } as Any,
      ]
    case .deviceInfo(let info): return deviceInfo(info)
    case .privateKey(let key): return ["kind": "PRIVATE_KEY", "private_key": Hex.string(key)]
    case .disabled: return ["kind": "DISABLED"]
    case .channelInfo(let channel):
      return [
        "kind": "CHANNEL_INFO", "channel": Int(channel.slot), "name": channel.name.string,
        "secret": Hex.string(channel.secret.bytes),
      ]
    case .signStart(let limit): return ["kind": "SIGN_START", "limit": Int(limit)]
    case .signature(let bytes): return ["kind": "SIGNATURE", "signature": Hex.string(bytes)]
    case .customVariables(let text):
      var variables: Fields = [:]
      for pair in text.string.split(separator: ",") {
        let parts = pair.split(separator: ":", maxSplits: 1).map(String.init)
        variables[parts[0]] = parts[1]
      }
      return ["kind": "CUSTOM_VARS", "variables": variables]
    case .advertPath(let time, let path):
      return [
        "kind": "ADVERT_PATH", "time": Int(time), "path_len": length(path.length), "path": path.description,
      ]
    case .tuning(let tuning):
      return [
        "kind": "TUNING_PARAMS", "rx_delay_x1000": Int(tuning.rxDelayBase),
        "airtime_factor_x1000": Int(tuning.airtimeFactor),
      ]
    case .stats(let stats): return self.stats(stats)
    case .autoAdd(let auto):
      return ["kind": "AUTOADD_CONFIG", "flags": Int(auto.flags), "max_hops": auto.maxHops.map { Int($0) } as Any]
    case .allowedRepeatFrequencies(let ranges):
      return ["kind": "ALLOWED_REPEAT_FREQ", "ranges_khz": ranges.map { [Int($0.lowest), Int($0.highest)] }]
    case .defaultFloodScope(let scope):
      return [
        "kind": "DEFAULT_FLOOD_SCOPE", "scope": scope?.name.string as Any,
        "scope_key": scope.map { Hex.string($0.key.bytes) } as Any,
      ]
    case .unknown: return [:]
    }
  }

  private static func selfInfo(_ info: SelfInfo) -> Fields {
    [
      "kind": "SELF_INFO", "adv_type": Int(info.advertType), "tx_power_dbm": Int(info.txPower),
      "max_tx_power_dbm": Int(info.maxTxPower), "key": info.key.hex, "lat_e6": Int(info.latitude),
      "lon_e6": Int(info.longitude), "multi_acks": Int(info.multiAcks), "location_policy": Int(info.locationPolicy),
      "telemetry": modes(info.telemetryModes), "manual_add": Int(info.manualAddContacts),
      "frequency_khz": Int(info.radio.frequency), "bandwidth_hz": Int(info.radio.bandwidth),
      "sf": Int(info.radio.spreadingFactor), "cr": Int(info.radio.codingRate), "name": info.name.string,
    ]
  }

  private static func deviceInfo(_ info: DeviceInfo) -> Fields {
    var fields: Fields = ["kind": "DEVICE_INFO", "protocol_version": Int(info.protocolVersion)]
    guard let details = info.details else { return fields }
    fields["max_contacts"] = info.maxContacts
    fields["channels"] = Int(details.channelSlots)
    fields["pin"] = Int(details.pin)
    fields["build"] = details.build.string
    fields["model"] = details.model.string
    fields["version"] = details.version.string
    fields["repeat"] = info.clientRepeat.map { $0 != 0 }
    fields["path_hash_mode"] = info.pathHashMode.map { Int($0) }
    return fields
  }

  private static func message(_ message: QueuedMessage, code: UInt8) -> Fields {
    switch message {
    case .contact(let message):
      return [
        "kind": code == 16 ? "CONTACT_MSG_RECV_V3" : "CONTACT_MSG_RECV", "snr_db": message.snr?.decibels as Any,
        "sender_prefix": message.sender.hex, "path": path(message.path), "text_type": Int(message.textType.rawValue),
        "sender_time": Int(message.senderTime), "author_prefix": message.author.map { Hex.string($0) } as Any,
        "text": message.text.string,
      ]
    case .channel(let message):
      return [
        "kind": code == 17 ? "CHANNEL_MSG_RECV_V3" : "CHANNEL_MSG_RECV", "snr_db": message.snr?.decibels as Any,
        "channel": Int(message.slot), "path": path(message.path), "text_type": Int(message.textType.rawValue),
        "sender_time": Int(message.senderTime), "text": message.text.string,
      ]
    case .datagram(let datagram):
      return [
        "kind": "CHANNEL_DATA_RECV", "snr_db": datagram.snr.decibels, "channel": Int(datagram.slot),
        "path": path(datagram.path), "data_type": Int(datagram.dataType), "length": datagram.data.count,
        "data": Hex.string(datagram.data),
      ]
    }
  }

  private static func stats(_ stats: Stats) -> Fields {
    switch stats {
    case .core(let core):
      return [
        "kind": "STATS", "stats": 0, "battery_mv": Int(core.batteryMillivolts), "uptime_s": Int(core.uptime),
        "error_flags": Int(core.errorFlags), "tx_queue": Int(core.queueLength),
      ]
    case .radio(let radio):
      return [
        "kind": "STATS", "stats": 1, "noise_floor_dbm": Int(radio.noiseFloor), "last_rssi_dbm": Int(radio.lastRSSI),
        "last_snr_db": radio.lastSNR.decibels, "tx_seconds": Int(radio.secondsSent),
        "rx_seconds": Int(radio.secondsReceived),
      ]
    case .packets(let packets):
      return [
        "kind": "STATS", "stats": 2, "received": Int(packets.received), "sent": Int(packets.sent),
        "sent_flood": Int(packets.sentFlood), "sent_direct": Int(packets.sentDirect),
        "received_flood": Int(packets.receivedFlood), "received_direct": Int(packets.receivedDirect),
        "receive_errors": packets.receiveErrors.map { Int($0) } as Any,
      ]
    case .unknown: return [:]
    }
  }

  private static func push(_ push: Push) throws -> Fields {
    switch push {
    case .advert(let key): return ["kind": "ADVERT", "key": key.hex]
    case .pathUpdated(let key): return ["kind": "PATH_UPDATED", "key": key.hex]
    case .sendConfirmed(let ack, let trip): return ["kind": "SEND_CONFIRMED", "ack": ack.hex, "trip_ms": Int(trip)]
    case .messageWaiting: return ["kind": "MSG_WAITING"]
    case .rawData(let snr, let rssi, let payload):
      return ["kind": "RAW_DATA", "snr_db": snr.decibels, "rssi_dbm": Int(rssi), "payload": Hex.string(payload)]
    case .loginSuccess(let login):
      return [
        "kind": "LOGIN_SUCCESS", "permissions": Int(login.permissions), "prefix": login.prefix.hex,
        "server_time": login.serverTime.map { Int($0) } as Any, "acl": login.acl.map { Int($0) } as Any,
        "role": login.acl.map { Int($0 & 3) } as Any, "firmware_level": login.firmwareLevel.map { Int($0) } as Any,
      ]
    case .loginFail(let prefix): return ["kind": "LOGIN_FAIL", "prefix": prefix.hex]
    case .statusResponse(let prefix, let data):
      return ["kind": "STATUS_RESPONSE", "prefix": prefix.hex, "status_data": data]
    case .logRxData(let snr, let rssi, let bytes):
      return [
        "kind": "LOG_RX_DATA", "snr_db": snr.decibels, "rssi_dbm": Int(rssi), "packet": packetOrNothing(bytes),
      ]
    case .traceData(let trace):
      let size = trace.hashSize
      let hops: [Fields] = trace.hopSNRs.enumerated().map { index, snr in
        ["hash": Hex.string(trace.hashes[index * size..<(index + 1) * size]), "snr_db": snr.decibels]
      }
      return [
        "kind": "TRACE_DATA", "flags": Int(trace.flags), "tag": Int(trace.tag), "auth": Int(trace.auth),
        "hash_size": size, "hops": hops, "final_snr_db": trace.finalSNR.decibels,
      ]
    case .newAdvert(let contact): return contact_(contact, kind: "NEW_ADVERT")
    case .telemetryResponse(let prefix, let data):
      return ["kind": "TELEMETRY_RESPONSE", "prefix": prefix.hex, "lpp": lpp(data)]
    case .binaryResponse(let tag, let data): return binaryResponse(tag, data)
    case .pathDiscoveryResponse(let found):
      return [
        "kind": "PATH_DISCOVERY_RESPONSE", "prefix": found.prefix.hex, "out_path_len": length(found.out.length),
        "out_path": found.out.description, "in_path_len": length(found.in.length), "in_path": found.in.description,
      ]
    case .controlData(let snr, let rssi, let pathLength, let payload):
      return [
        "kind": "CONTROL_DATA", "snr_db": snr.decibels, "rssi_dbm": Int(rssi), "path_len": Int(pathLength),
        "control": control(payload),
      ]
    case .contactDeleted(let key): return ["kind": "CONTACT_DELETED", "key": key.hex]
    case .contactsFull: return ["kind": "CONTACTS_FULL"]
    case .unknown: return [:]
    }
  }

  private static func binaryResponse(_ tag: AckCode, _ data: [UInt8]) -> Fields {
    [
      "kind": "BINARY_RESPONSE", "tag": tag.hex, "data": Hex.string(data), "lpp": lpp(data),
      "access_list": accessList(data), "neighbours": (try? neighbours(data, keyBytes: 4)) as Any,
    ]
  }

  static func accessList(_ data: [UInt8]) -> [Fields] {
    AccessEntry.list(decoding: data).map { ["prefix": $0.prefix.hex, "permissions": Int($0.permissions)] }
  }

  private static func neighbours(_ data: [UInt8], keyBytes: Int) throws -> Fields {
    let found = try Neighbours(decoding: data, keyBytes: keyBytes)
    return [
      "total": Int(found.total),
      "results": found.entries.map { entry -> Fields in
        ["key": Hex.string(entry.key), "seconds_ago": Int(entry.heardAgo), "snr_db": entry.snr.decibels]
      },
    ]
  }

  static func lpp(_ data: [UInt8]) -> [Fields] {
    Telemetry(decoding: data).readings.map { reading in
      let value: Any =
        switch reading.type {
        case .gps: ["lat": reading.values[0], "lon": reading.values[1], "alt_m": reading.values[2]] as Fields
        default: reading.values.count == 1 ? reading.values[0] : reading.values
        }
      return ["channel": Int(reading.channel), "type": Int(reading.type.rawValue), "value": value]
    }
  }

  static func status(_ data: [UInt8], of type: NodeType) throws -> Fields {
    let status = try NodeStatus(decoding: data, of: type)
    var fields: Fields = [
      "battery_mv": Int(status.batteryMillivolts), "tx_queue": Int(status.queueLength),
      "noise_floor_dbm": Int(status.noiseFloor), "last_rssi_dbm": Int(status.lastRSSI),
      "received": Int(status.received), "sent": Int(status.sent), "tx_seconds": Int(status.secondsSent),
      "uptime_s": Int(status.uptime), "sent_flood": Int(status.sentFlood), "sent_direct": Int(status.sentDirect),
      "received_flood": Int(status.receivedFlood), "received_direct": Int(status.receivedDirect),
      "error_flags": Int(status.errorFlags), "direct_dups": Int(status.directDuplicates),
      "flood_dups": Int(status.floodDuplicates), "last_snr_db": Double(status.lastSNRQuarters) / 4,
    ]
    switch status.tail {
    case .repeater(let seconds, let errors):
      fields["rx_seconds"] = seconds.map { Int($0) }
      fields["receive_errors"] = errors.map { Int($0) }
    case .room(let stored, let pushed):
      fields["posted"] = stored.map { Int($0) }
      fields["post_pushes"] = pushed.map { Int($0) }
    case .none: break
    }
    return fields
  }
}
