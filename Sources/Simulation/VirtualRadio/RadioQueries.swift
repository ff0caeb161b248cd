// SPDX-License-Identifier: MIT

import Companion

extension VirtualRadio {
  /// Executes commands that change nothing. False: the command is of another kind.
  func carryOutQuery(_ command: Command) -> Bool {
    switch command {
    case .appStart:
      volatile.iteration = nil
      reply(.selfInfo(selfInfo))
    case .deviceQuery(let version):
      volatile.clientVersion = version
      reply(.deviceInfo(deviceInfo))
    case .getDeviceTime: reply(.currentTime(clock))
    case .getBattery: reply(.battery(Battery(millivolts: batteryMillivolts, usedKibibytes: 48, totalKibibytes: 1404)))
    case .exportPrivateKey: reply(.privateKey(stored.identity.expanded))
    case .getChannel(let slot):
      guard Int(slot) < stored.channels.count else { return refuse(.notFound) }
      reply(.channelInfo(stored.channels[Int(slot)]))
    case .getCustomVariables: reply(.customVariables("gps:0"))
    case .getTuning: reply(.tuning(stored.tuning))
    case .getAutoAdd: reply(.autoAdd(stored.autoAdd))
    case .getAllowedRepeatFrequencies:
      reply(.allowedRepeatFrequencies(Self.repeatFrequencies.map { FrequencyRange(lowest: $0, highest: $0) }))
    case .getDefaultFloodScope: reply(.defaultFloodScope(stored.defaultScope))
    case .getStats(let type):
      guard let stats = stats(type) else { return refuse(.illegalArgument) }
      reply(.stats(stats))
    case .hasConnection: reply(.error(.notFound))
    case .logout: reply(.ok)
    case .sendTelemetryRequest(nil): sendOwnTelemetry()
    case .syncNextMessage:
      if let message = volatile.queue.take() { put(message) } else { reply(.noMoreMessages) }
    default: return false
    }
    return true
  }

  static let repeatFrequencies: [UInt32] = [433_000, 869_495, 918_000]

  private var selfInfo: SelfInfo {
    SelfInfo(
      txPower: stored.txPower, maxTxPower: 22, key: key, latitude: stored.latitude, longitude: stored.longitude,
      multiAcks: stored.other.multiAcks ?? 0, locationPolicy: stored.other.locationPolicy ?? 0,
      telemetryModes: stored.other.telemetryModes ?? TelemetryModes(raw: 0),
      manualAddContacts: stored.other.manualAddContacts, radio: stored.radio, name: stored.name)
  }

  private var deviceInfo: DeviceInfo {
    DeviceInfo(
      protocolVersion: settings.firmware.protocolVersion,
      details: DeviceInfo.Details(
        halfMaxContacts: UInt8(clamping: settings.maxContacts / 2),
        channelSlots: UInt8(clamping: settings.channelSlots),
        pin: stored.pin, build: "14 Aug 2026", model: "Meshpost virtual radio", version: Text(settings.firmware.version)
      ),
      clientRepeat: stored.clientRepeat, pathHashMode: stored.pathHashMode)
  }

  private func stats(_ type: UInt8) -> Stats? {
    switch type {
    case 0:
      .core(Stats.Core(batteryMillivolts: batteryMillivolts, uptime: uptime, errorFlags: 0, queueLength: 0))
    case 1:
      .radio(
        Stats.Radio(
          noiseFloor: -112, lastRSSI: Ether.rssi, lastSNR: Ether.snr,
          secondsSent: UInt32(volatile.sentMilliseconds / 1000),
          secondsReceived: UInt32(volatile.receivedMilliseconds / 1000)))
    case 2:
      .packets(
        Stats.Packets(
          received: volatile.received, sent: volatile.sent, sentFlood: volatile.sentFlood,
          sentDirect: volatile.sent &- volatile.sentFlood, receivedFlood: volatile.receivedFlood,
          receivedDirect: volatile.received &- volatile.receivedFlood, receiveErrors: 0))
    default: nil
    }
  }

  private func sendOwnTelemetry() {
    let telemetry = Telemetry(readings: [
      Reading(channel: 1, type: .voltage, values: [4.12]), Reading(channel: 1, type: .temperature, values: [21.5]),
    ])
    put(Push.telemetryResponse(key.prefix, data: telemetry.encode()).encode())
  }
}
