// SPDX-License-Identifier: MIT

import Companion
import MeshIdentity

extension VirtualRadio {
  /// Executes commands that change settings; ranges as in docs/protocol/companion.md § 5. False: the command is of another kind.
  func carryOutSetting(_ command: Command) -> Bool {
    switch command {
    case .setDeviceTime(let time):
      guard time >= clock else { return refuse(.illegalArgument) }
      clock = time
    case .setAdvertName(let name): stored.name = Text(bytes: Array(name.beforeNul.bytes.prefix(31)))
    case .setAdvertPosition(let latitude, let longitude, _):
      guard abs(Int(latitude)) <= 90_000_000, abs(Int(longitude)) <= 180_000_000 else {
        return refuse(.illegalArgument)
      }
      stored.latitude = latitude
      stored.longitude = longitude
    case .setRadioParameters(let radio, let clientRepeat): return set(radio, clientRepeat: clientRepeat ?? 0)
    case .setTxPower(let dBm):
      guard (-9...22).contains(dBm) else { return refuse(.illegalArgument) }
      stored.txPower = dBm
    case .setTuning(let tuning): stored.tuning = tuning
    case .setDevicePIN(let pin):
      guard pin == 0 || (100_000...999_999).contains(pin) else { return refuse(.illegalArgument) }
      stored.pin = pin
    case .setOtherParameters(let other): set(other)
    case .setCustomVariable(let pair):
      guard pair == "gps:0" || pair == "gps:1" else { return refuse(.illegalArgument) }
    case .setAutoAdd(let autoAdd):
      let hops = autoAdd.maxHops.map { min($0, 64) } ?? stored.autoAdd.maxHops
      stored.autoAdd = AutoAdd(flags: autoAdd.flags, maxHops: hops)
    case .setPathHashMode(let mode):
      guard mode < 3 else { return refuse(.illegalArgument) }
      stored.pathHashMode = mode
    case .setFloodScopeKey(let scope):
      volatile.scope = scope
    case .setDefaultFloodScope(let scope):
      if let scope, scope.name.isEmpty || scope.name.bytes.count > 30 { return refuse(.illegalArgument) }
      stored.defaultScope = scope
    case .setChannel(let channel):
      guard Int(channel.slot) < stored.channels.count else { return refuse(.notFound) }
      stored.channels[Int(channel.slot)] = channel
    case .setChannelLongSecret: return refuse(.unsupported)
    case .importPrivateKey(let bytes):
      guard let identity = PrivateIdentity(expanded: bytes) else { return refuse(.illegalArgument) }
      stored.identity = identity
    default: return false
    }
    reply(.ok)
    return true
  }

  /// Answers with an error. Returns true: the command is answered.
  func refuse(_ error: RadioError) -> Bool {
    reply(.error(error))
    return true
  }

  private func set(_ radio: RadioParameters, clientRepeat: UInt8) -> Bool {
    guard (150_000...2_500_000).contains(radio.frequency), (7_000...500_000).contains(radio.bandwidth),
      (5...12).contains(radio.spreadingFactor), (5...8).contains(radio.codingRate),
      clientRepeat == 0 || Self.repeatFrequencies.contains(radio.frequency)
    else { return refuse(.illegalArgument) }
    stored.radio = radio
    stored.clientRepeat = clientRepeat
    reply(.ok)
    return true
  }

  private func set(_ other: OtherParameters) {
    stored.other.manualAddContacts = other.manualAddContacts
    stored.other.telemetryModes = other.telemetryModes ?? stored.other.telemetryModes
    stored.other.locationPolicy = other.locationPolicy ?? stored.other.locationPolicy
    stored.other.multiAcks = other.multiAcks ?? stored.other.multiAcks
  }
}
