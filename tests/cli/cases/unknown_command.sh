hasten trian
hasten banana
hasten --versio
