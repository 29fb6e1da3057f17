hasten plot
hasten plot nowhere
mkdir -p out/checkpoint-10
hasten plot out
echo '{"log_history": [{"loss": 0.5, "step": 10}, {"eval_loss": 0.4, "step": 10}]}' >out/checkpoint-10/trainer_state.json
hasten plot out
printf 'step,time,name,value\n10,1.0,train/loss,0.4\n' >metrics.csv
hasten plot out metrics.csv --smoothing 0.5 --output both.html
hasten plot --log_scale out --output again.html metrics.csv
grep -o '"runs":.*' both.html
hasten plot out --curves loss
hasten plot out --smoothing 1
