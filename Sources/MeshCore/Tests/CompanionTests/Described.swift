// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto

/// Decoded values as the dictionaries of vectors.json, so that every field that a vector names is compared.
enum Described {
  typealias Fields = [String: Any]

  static func command(_ command: Command) -> Fields {
    var fields: Fields = ["code": Int(command.encode()[0])]
    for (name, value) in specifics(command) { fields[name] = value }
    return fields
  }

  private static func specifics(_ command: Command) -> Fields {
    switch command {
    case .appStart(let start): ["kind": "APP_START", "client": start.client.string.trimmed]
    case .deviceQuery(let version): ["kind": "DEVICE_QUERY", "client_version": Int(version)]
    case .getBattery: ["kind": "GET_BATT_AND_STORAGE"]
    case .getDeviceTime: ["kind": "GET_DEVICE_TIME"]
    case .setDeviceTime(let time): ["kind": "SET_DEVICE_TIME", "time": Int(time)]
    case .setAdvertName(let name): ["kind": "SET_ADVERT_NAME", "name": name.string]
    case .setAdvertPosition(let lat, let lon, _):
      ["kind": "SET_ADVERT_LATLON", "lat_e6": Int(lat), "lon_e6": Int(lon)]
    case .setTxPower(let dbm): ["kind": "SET_RADIO_TX_POWER", "dbm": Int(dbm)]
    case .setRadioParameters(let radio, let clientRepeat):
      [
        "kind": "SET_RADIO_PARAMS", "frequency_khz": Int(radio.frequency), "bandwidth_hz": Int(radio.bandwidth),
        "sf": Int(radio.spreadingFactor), "cr": Int(radio.codingRate), "repeat": Int(clientRepeat ?? 0),
      ]
    case .sendSelfAdvert(let flood): ["kind": "SEND_SELF_ADVERT", "flood": flood ?? false]
    case .reboot: ["kind": "REBOOT"]
    case .factoryReset: ["kind": "FACTORY_RESET"]
    case .getContacts(let since): ["kind": "GET_CONTACTS", "since": since.map { Int($0) } as Any]
    case .syncNextMessage: ["kind": "SYNC_NEXT_MESSAGE"]
    case .sendText(let text):
      [
        "kind": "SEND_TXT_MSG", "text_type": Int(text.type.rawValue), "attempt": Int(text.attempt),
        "time": Int(text.time), "recipient_prefix": text.recipient.hex, "text": text.text.string,
      ]
    case .sendChannelText(let type, let slot, let time, let text):
      [
        "kind": "SEND_CHANNEL_TXT_MSG", "text_type": Int(type.rawValue), "channel": Int(slot), "time": Int(time),
        "text": text.string,
      ]
    case .sendLogin(let key, let password): ["kind": "SEND_LOGIN", "key": key.hex, "password": password.string]
    case .logout(let key): ["kind": "LOGOUT", "key": key.hex]
    case .sendStatusRequest(let key): ["kind": "SEND_STATUS_REQ", "key": key.hex]
    case .getChannel(let slot): ["kind": "GET_CHANNEL", "channel": Int(slot)]
    case .setChannel(let channel):
      [
        "kind": "SET_CHANNEL", "channel": Int(channel.slot), "name": channel.name.string,
        "secret": Hex.string(channel.secret.bytes),
      ]
    case .getStats(let type): ["kind": "GET_STATS", "stats": Int(type)]
    case .sendTelemetryRequest(let key): ["kind": "SEND_TELEMETRY_REQ", "key": key?.hex as Any]
    case .exportPrivateKey: ["kind": "EXPORT_PRIVATE_KEY"]
    case .importPrivateKey(let key): ["kind": "IMPORT_PRIVATE_KEY", "private_key": Hex.string(key)]
    case .signStart: ["kind": "SIGN_START"]
    case .signData(let data): ["kind": "SIGN_DATA", "data": Hex.string(data)]
    case .signFinish: ["kind": "SIGN_FINISH"]
    case .sendPathDiscovery(let key): ["kind": "SEND_PATH_DISCOVERY_REQ", "key": key.hex]
    case .sendChannelData(let datagram):
      [
        "kind": "SEND_CHANNEL_DATA", "channel": Int(datagram.slot), "path_len": Int(datagram.path?.length.raw ?? 255),
        "path": datagram.path?.description ?? "", "data_type": Int(datagram.dataType),
        "data": Hex.string(datagram.data),
      ]
    case .exportContact(let key): ["kind": "EXPORT_CONTACT", "key": key?.hex as Any]
    case .getContactByKey(let key): ["kind": "GET_CONTACT_BY_KEY", "key": key.hex]
    case .getAdvertPath(let key): ["kind": "GET_ADVERT_PATH", "key": key.hex]
    case .removeContact(let key): ["kind": "REMOVE_CONTACT", "key": key.hex]
    case .shareContact(let key): ["kind": "SHARE_CONTACT", "key": key.hex]
    case .hasConnection(let key): ["kind": "HAS_CONNECTION", "key": key.hex]
    case .resetPath(let key): ["kind": "RESET_PATH", "key": key.hex]
    case .setOtherParameters(let other):
      [
        "kind": "SET_OTHER_PARAMS", "manual_add": Int(other.manualAddContacts),
        "telemetry": other.telemetryModes.map(modes) as Any,
        "location_policy": other.locationPolicy.map { Int($0) } as Any,
        "multi_acks": other.multiAcks.map { Int($0) } as Any,
      ]
    case .sendTracePath(let trace):
      [
        "kind": "SEND_TRACE_PATH", "tag": Int(trace.tag), "auth": Int(trace.auth), "flags": Int(trace.flags),
        "path": Hex.string(trace.path),
      ]
    case .setAutoAdd(let auto):
      ["kind": "SET_AUTOADD_CONFIG", "flags": Int(auto.flags), "max_hops": auto.maxHops.map { Int($0) } as Any]
    case .getAutoAdd: ["kind": "GET_AUTOADD_CONFIG"]
    case .sendBinaryRequest(let key, let request): binary(key, request)
    case .addUpdateContact(let contact): contact_(contact, kind: "ADD_UPDATE_CONTACT")
    case .setFloodScopeKey(.key(let key)):
      ["kind": "SET_FLOOD_SCOPE_KEY", "mode": 0, "scope_key": Hex.string(key.bytes)]
    case .setFloodScopeKey(.unscoped): ["kind": "SET_FLOOD_SCOPE_KEY", "mode": 1]
    case .setFloodScopeKey: ["kind": "SET_FLOOD_SCOPE_KEY", "mode": 0]
    case .setDefaultFloodScope(let scope):
      [
        "kind": "SET_DEFAULT_FLOOD_SCOPE", "scope": scope?.name.string as Any,
        "scope_key": scope.map { Hex.string($0.key.bytes) } as Any,
      ]
    case .getDefaultFloodScope: ["kind": "GET_DEFAULT_FLOOD_SCOPE"]
    case .setPathHashMode(let mode): ["kind": "SET_PATH_HASH_MODE", "mode": Int(mode)]
    case .sendControlData(let payload): ["kind": "SEND_CONTROL_DATA", "control": control(payload)]
    case .sendAnonymousRequest(let key, let type, let parameters):
      ["kind": "SEND_ANON_REQ", "key": key.hex, "request_type": Int(type), "parameters": Hex.string(parameters)]
    case .setDevicePIN(let pin): ["kind": "SET_DEVICE_PIN", "pin": Int(pin)]
    case .setCustomVariable(let pair):
      {
        let parts = pair.string.split(separator: ":", maxSplits: 1).map(String.init)
        return ["kind": "SET_CUSTOM_VAR", "name": parts[0], "value": parts[1]]
      }()
    case .getCustomVariables: ["kind": "GET_CUSTOM_VARS"]
    case .getAllowedRepeatFrequencies: ["kind": "GET_ALLOWED_REPEAT_FREQ"]
    case .getTuning: ["kind": "GET_TUNING_PARAMS"]
    case .setTuning(let tuning):
      [
        "kind": "SET_TUNING_PARAMS", "rx_delay_x1000": Int(tuning.rxDelayBase),
        "airtime_factor_x1000": Int(tuning.airtimeFactor),
      ]
    case .sendRawData(let path, let payload):
      ["kind": "SEND_RAW_DATA", "path": Hex.string(path), "payload": Hex.string(payload)]
    case .importContact(let card): ["kind": "IMPORT_CONTACT", "packet": packetOrNothing(card)]
    case .sendRawPacket(let priority, let bytes):
      ["kind": "SEND_RAW_PACKET", "priority": Int(priority), "packet": packetOrNothing(bytes)]
    case .setChannelLongSecret, .unknown: [:]
    }
  }

  private static func binary(_ key: PublicKey, _ request: BinaryRequest) -> Fields {
    var fields: Fields = [
      "kind": "SEND_BINARY_REQ", "key": key.hex, "request_type": Int(request.type),
      "parameters": Hex.string(request.parameters),
    ]
    let query = request.parameters
    if request.type == 6, query.count >= 6 {
      fields["neighbours"] = [
        "version": Int(query[0]), "count": Int(query[1]), "first": Int(query[2]) | Int(query[3]) << 8,
        "order": Int(query[4]), "key_bytes": Int(query[5]), "random": Hex.string(query[6...]),
      ]
    }
    return fields
  }

  static func modes(_ modes: TelemetryModes) -> Fields {
    ["base": Int(modes.base), "location": Int(modes.location), "environment": Int(modes.environment)]
  }

  static func contact_(_ contact: Contact, kind: String) -> Fields {
    [
      "kind": kind, "key": contact.key.hex, "type": Int(contact.type.rawValue), "flags": Int(contact.flags),
      "out_path_len": Int(contact.outPath?.length.raw ?? 255), "hops": contact.outPath?.hops as Any,
      "bytes_per_hop": contact.outPath?.length.bytesPerHop as Any, "out_path": contact.outPath?.description as Any,
      "name": contact.name.string, "last_advert": Int(contact.lastAdvert), "lat_e6": Int(contact.latitude ?? 0),
      "lon_e6": Int(contact.longitude ?? 0), "lastmod": Int(contact.lastModified ?? 0),
    ]
  }

  static func control(_ payload: [UInt8]) -> Fields {
    switch try? ControlPayload(decoding: payload) {
    case .discoverRequest(let prefixOnly, let filter, let tag, let since):
      [
        "subtype": 8, "kind": "DISCOVER_REQ", "prefix_only": prefixOnly, "type_filter": Int(filter), "tag": Int(tag),
        "since": since.map { Int($0) } as Any,
      ]
    case .discoverResponse(let type, let snr, let tag, let key):
      [
        "subtype": 9, "kind": "DISCOVER_RESP", "node_type": Int(type.rawValue), "snr_in_db": snr.decibels,
        "tag": Int(tag), "key": Hex.string(key),
      ]
    default: [:]
    }
  }

  static func packetOrNothing(_ bytes: [UInt8]) -> Fields { (try? packet(bytes)) ?? [:] }

  static func length(_ length: PathLength) -> Fields {
    ["raw": Int(length.raw), "hops": length.hops, "bytes_per_hop": length.bytesPerHop]
  }

  static func packet(_ bytes: [UInt8]) throws -> Fields {
    let packet = try Packet(decoding: bytes)
    let routes = ["transport flood", "flood", "direct", "transport direct"]
    var fields: Fields = [
      "route": routes[Int(packet.route.rawValue)], "payload_type": packet.type.name, "version": 0,
      "packet_hash": Hex.string(packet.identity).uppercased(),
    ]
    if packet.type == .trace {
      fields["path_snrs_db"] = packet.path.map { Double(Int8(bitPattern: $0)) / 4 }
    } else {
      fields["path_len"] = length(packet.pathLength)
      fields["path"] = Hex.string(packet.path)
    }
    if let codes = packet.transportCodes { fields["transport_codes"] = [Int(codes.first), Int(codes.second)] }
    for (name, value) in payload(try packet.content()) { fields[name] = value }
    if packet.isInScope(of: .hashtag("#ottawa")) { fields["region"] = "ottawa" }
    return fields
  }

  private static func payload(_ payload: Payload) -> Fields {
    switch payload {
    case .request(let e), .response(let e), .text(let e), .path(let e):
      return [
        "dest": Hex.string([e.destination]), "source": Hex.string([e.source]), "mac": Hex.string(e.mac),
        "cipher": Hex.string(e.cipher),
      ]
    case .ack(let ack, _): return ["ack": ack.hex]
    case .advert(let advert):
      guard let content = try? advert.content() else { return [:] }
      return [
        "key": advert.key.hex, "time": Int(advert.time), "signature": Hex.string(advert.signature),
        "node_type": Int(content.type.rawValue), "flags": Int(content.flags), "name": content.name?.string as Any,
        "lat_e6": content.position.map { Int($0.latitude) } as Any,
        "lon_e6": content.position.map { Int($0.longitude) } as Any, "signature_valid": advert.isSignatureValid,
      ]
    case .groupText(let e), .groupData(let e):
      return ["channel_hash": Hex.string([e.channelHash]), "mac": Hex.string(e.mac), "cipher": Hex.string(e.cipher)]
    case .anonymousRequest(let destination, let sender, let mac, let cipher):
      return [
        "dest": Hex.string([destination]), "sender_key": sender.hex, "mac": Hex.string(mac),
        "cipher": Hex.string(cipher),
      ]
    case .trace(let tag, let auth, let flags, let hashes):
      let size = 1 << Int(flags & 3)
      return [
        "tag": Int(tag), "auth": Int(auth), "flags": Int(flags), "hash_size": size,
        "route_hashes": stride(from: 0, to: hashes.count, by: size).map { Hex.string(hashes[$0..<$0 + size]) },
      ]
    case .multipart(let remaining, let type, let content):
      return ["remaining": Int(remaining), "part_type": type.name, "content": Hex.string(content)]
    case .control(let control): return ["control": Described.control(control.encode())]
    case .rawCustom, .unknown: return [:]
    }
  }
}

extension String {
  var trimmed: String { String(drop { $0 == " " }) }
}
